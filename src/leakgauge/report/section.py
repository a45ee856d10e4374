"""The parts of a report that a question gives: summary rows, a section, charts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from leakgauge.results.measurements import Estimate

Level = Literal["strong", "clear", "weak", "none", "below", "unknown"]
"""How much leaks: the colour of a badge. ``below`` is an invalid result, ``unknown`` no verdict."""

LEVELS: Mapping[str, int] = {
    "strong": 5, "clear": 4, "weak": 3, "unknown": 2, "below": 1, "none": 0,
}  # fmt: skip
"""The levels by how urgent they are."""


@dataclass(frozen=True)
class Row:
    """One line of the report's summary.

    Attributes:
        ask: the word of ``--ask``.
        verdict: the verdict in a few words.
        level: its level.
        text: the result in one or two sentences, for a reader who is no specialist.
        metric: title of the headline figure; empty without one.
        estimate: the headline figure.
        chance: its value where nothing leaks; None where that is not known.
        strength: between 0 (nothing leaks) and 1 (everything does): orders rows of one level.
    """

    ask: str
    verdict: str
    level: Level
    text: str
    metric: str = ""
    estimate: Estimate | None = None
    chance: float | None = None
    strength: float = 0.0


@dataclass(frozen=True)
class DefenseEffect:
    """What the best defense of a section changed, against an adversary that knows it.

    Attributes:
        defense: its name.
        text: what it lowered, from where to where, and what it cost, in one sentence.
        helps: whether it lowered the leakage beyond the intervals.
    """

    defense: str
    text: str
    helps: bool


@dataclass(frozen=True)
class Line:
    """One paragraph of the terminal's answer.

    Attributes:
        text: plain text.
        level: colours the first line.
        heading: stands before the text on a line of its own; empty for none.
        detail: stands dimmed behind the heading.
    """

    text: str
    level: Level | None = None
    heading: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Section:
    """A question's part of the report.

    Attributes:
        name: the question's name: anchor of the section and prefix of the anchors inside.
        title: its heading.
        html: its content, without the heading.
        rows: its lines in the summary.
        lines: the answer for the terminal.
        missing: what was requested and not completed, one sentence each.
        effect: what the best defense changed; None without defenses.
        next_command: the command that would make this answer better; empty for none.
        nav: anchors inside and their titles.
        style: CSS of its own.
        private: whether it shows private records.
    """

    name: str
    title: str
    html: Markup
    rows: Sequence[Row]
    lines: Sequence[Line] = ()
    missing: Sequence[str] = ()
    effect: DefenseEffect | None = None
    next_command: str = ""
    nav: Sequence[tuple[str, str]] = ()
    style: str = ""
    private: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of a grid's page.

    Attributes:
        caption: stands above it.
        says: the chart in words, for readers who do not see it.
        svg: the chart; None where there is nothing to draw.
        legend: HTML below it.
        note: a sentence below it.
    """

    caption: str
    says: str
    svg: Markup | None
    legend: Markup = Markup("")  # noqa: RUF009 - immutable
    note: str = ""
