"""Draw the diagrams of the threat models: ``python docs/_ext/diagrams.py`` writes the files.

A diagram reads from top to bottom, so that it fits a phone: source, sent values, receiver, and what
an observer sees, knows and asks. Colours are CSS classes. In a file they follow the reader's
system; in the site ``inline_diagrams`` removes the style and ``site.css`` supplies it.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "diagrams"

WIDTH, MARGIN, PAD = 420, 12, 14
LINE, HEAD = 18, 22
CHARACTERS = 48
"""Maximum number of characters per line in a box, for a common typeface of 13 pixels."""

STYLE = """\
<style>
.diagram-box{fill:none;stroke:#888}.diagram-private{fill:#d9482b22;stroke:#d9482b}
.diagram-observer{fill:#2b6cd922;stroke:#2b6cd9}.diagram-line{stroke:#888;fill:none}
.diagram-tap{stroke:#2b6cd9;fill:none}.diagram-tip{fill:#888}.diagram-text{fill:#222}
@media (prefers-color-scheme:dark){.diagram-text{fill:#ddd}}
</style>
"""


@dataclass(frozen=True)
class Diagram:
    """The threat model of one question.

    Attributes:
        title: text for screen readers.
        source: holder of the private records, then the records.
        sent: values that leave the source.
        receiver: receiver of the values, then its use of them.
        observer: name of the observer.
        rows: what the observer sees, knows, lacks and asks.
        behind: whether the observer sees the receiver's output instead of the sent values.
    """

    title: str
    source: tuple[str, ...]
    sent: str
    receiver: tuple[str, ...]
    observer: str
    rows: tuple[tuple[str, str], ...]
    behind: bool = False


DIAGRAMS = {
    "inference": Diagram(
        "Inference of a secret from gradients",
        ("Client", "private records; a batch whose records share a secret"),
        "mean gradient of the batch, after the defense",
        ("Server", "averages, and steps the model"),
        "Observer: reads what one client sends",
        (
            ("sees", "the gradient in one round, or in all rounds"),
            ("knows", "model and parameters of each round, shadow records of the same kind with "
             "their secrets; the defense, if it is adaptive"),
            ("lacks", "every private record"),
            ("asks", "Which secret do the records of this batch have?"),
        ),
    ),
    "guarantee": Diagram(
        "Audit of a guarantee",
        ("Mechanism", "one record, in versions that differ in one attribute"),
        "clipped gradient with noise: one release",
        ("Auditor's table", "many releases of either version"),
        "Observer: the strongest that DP allows for",
        (
            ("sees", "each release"),
            ("knows", "the record in all versions, the model, clip and noise"),
            ("lacks", "which version is behind a release, and the noise"),
            ("asks", "Which version is behind this release?"),
        ),
    ),
    "membership": Diagram(
        "Membership inference",
        ("Trainer, or a participant", "members: the records that are trained on"),
        "the trained model, or its parameters in each round",
        ("Receiver of the model", "a customer, the server, another participant"),
        "Observer: has the model and a target record",
        (
            ("sees", "outputs, loss and gradients of the target, as far as the attack does"),
            ("knows", "some members, or records of the same kind, or nothing"),
            ("lacks", "which target records are members"),
            ("asks", "Was this record trained on?"),
        ),
    ),
    "reconstruction": Diagram(
        "Reconstruction of records",
        ("Client", "a batch of records; one gradient, or local steps"),
        "gradient or weights, after the defense",
        ("Server", "sent the model, and gets the update"),
        "Observer: reads what one client sends",
        (
            ("sees", "one update, or those of several epochs"),
            ("knows", "model, start, loss, numbers of records and steps, the local rate, the range "
             "of features; labels only if they are granted"),
            ("lacks", "the records, and by default their labels"),
            ("asks", "Which records give this update?"),
        ),
    ),
    "layers": Diagram(
        "Leakage by layer",
        ("Another participant", "a batch with the property, or without it"),
        "gradient or update, layer by layer",
        ("Server", "averages, and sends the global model to all"),
        "Observer: a participant",
        (
            ("sees", "two global models; their difference minus its own part is the other's "
             "gradient; some layers of it"),
            ("knows", "own records with label and property, and the model"),
            ("lacks", "the other's records"),
            ("asks", "Does the batch have the property, by this layer alone?"),
        ),
        behind=True,
    ),
    "timeline": Diagram(
        "Leakage over a training",
        ("Trainer", "batches, at a checkpoint of the training"),
        "gradient of each batch",
        ("Optimizer", "steps the model"),
        "Observer: the trainer, who only measures",
        (
            ("sees", "pairs of a batch's features and its gradient"),
            ("knows", "the pairs that a critic learns from"),
            ("lacks", "the held-out pairs, on which the bound is measured"),
            ("asks", "How many nats does a gradient reveal, at least, at this checkpoint?"),
        ),
    ),
}  # fmt: skip
"""Diagrams by file name."""


def svg(diagram: Diagram) -> str:
    """Return the diagram as SVG."""
    parts: list[str] = []
    top = float(MARGIN)
    bottom = top + _box(parts, top, "diagram-private", diagram.source)
    tap, top = bottom + 26, bottom + 52
    parts.append(_arrow(bottom, top))
    parts.append(_text(WIDTH / 2 + 12, tap + 4, diagram.sent, italic=True, limit=26))
    bottom = top + _box(parts, top, "diagram-box", diagram.receiver)
    top = bottom + 34
    if diagram.behind:
        parts.append(_arrow(bottom, top))
    lines = [f"{name}: {text}" for name, text in diagram.rows]
    height = _box(parts, top, "diagram-observer", (diagram.observer, *lines))
    parts.append(_tap(bottom + 17 if diagram.behind else tap, top))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + height + MARGIN:g}" '
        f'role="img" font-family="sans-serif" font-size="13">\n<title>{escape(diagram.title)}'
        f"</title>\n{STYLE}" + "\n".join(parts) + "\n</svg>\n"
    )


def _box(parts: list[str], top: float, kind: str, texts: tuple[str, ...]) -> float:
    """Add a box with a bold first line, and return its height."""
    lines = list(_lines(texts))
    height = PAD + HEAD + LINE * (len(lines) - 1) + 4
    width = WIDTH - 2 * MARGIN - 24
    place = f'x="{MARGIN + 24}" y="{top:g}" width="{width}" height="{height:g}"'
    parts.append(f'<rect class="{kind}" {place} rx="6"/>')
    for number, (text, bold) in enumerate(lines):
        y = top + PAD + 6 + LINE * number + (4 if number else 0)
        parts.append(_text(MARGIN + 24 + PAD, y, text, bold=bold))
    return height


def _lines(texts: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    for number, text in enumerate(texts):
        for line in textwrap.wrap(text, CHARACTERS, subsequent_indent="    " if number else ""):
            yield line, number == 0


def _text(
    x: float, y: float, text: str, *, bold: bool = False, italic: bool = False, limit: int = 99
) -> str:
    """Return text as SVG, wrapped at ``limit`` characters and centred on ``y``."""
    style = ' font-weight="bold"' if bold else ' font-style="italic"' if italic else ""
    rows = textwrap.wrap(text.strip(), limit)
    first = y - LINE / 2 * (len(rows) - 1)
    indent = 14 if text.startswith("    ") else 0
    return "\n".join(
        f'<text class="diagram-text" x="{x + indent:g}" y="{first + LINE * number:g}"{style}>'
        f"{escape(row)}</text>"
        for number, row in enumerate(rows)
    )


def _arrow(top: float, bottom: float) -> str:
    x = WIDTH / 2
    return (
        f'<path class="diagram-line" d="M{x:g} {top:g} V{bottom - 7:g}"/>\n'
        f'<path class="diagram-tip" d="M{x - 5:g} {bottom - 8:g} h10 l-5 8 z"/>'
    )


def _tap(tap: float, observer: float) -> str:
    """Return a dashed line from the sent values to the observer, along the left edge."""
    left, end = MARGIN, observer + 20
    return (
        f'<path class="diagram-tap" stroke-dasharray="4 3" '
        f'd="M{WIDTH / 2:g} {tap:g} H{left:g} V{end:g} H{MARGIN + 24:g}"/>\n'
        f'<circle class="diagram-tap" cx="{WIDTH / 2:g}" cy="{tap:g}" r="4"/>'
    )


if __name__ == "__main__":
    for name, diagram in DIAGRAMS.items():
        (FOLDER / f"{name}.svg").write_text(svg(diagram), encoding="utf-8")
