"""What was rebuilt, in words and in charts."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.core.checks import InputError
from leakgauge.inference.report.cells import Cell, cells
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.wording import count, percent, short
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement

CLEAR_DB, CLOSE_DB = 20.0, 27.0
"""From where on rebuilt images can be recognised, and from where on they look like the truth. Our
own reading of many pictures, of 32 x 32 pixels; look at the ones below."""

_FAR = 3.0  # from where on the loss's first value over its last asks for a log axis

_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))
_COLOURS = (ACCENT, INK, MUTED)


def title(test: Cell) -> str:
    """An attempt in a few words."""
    return attempt(test.adversary, test.defense, test.knowledge)


def attempt(method: str, defense: str, knowledge: str) -> str:
    """A method, and the defense that it met.

    >>> attempt("agic", "none", "static"), attempt("agic", "sign", "adaptive")
    ('agic', 'agic, sign, adaptive')
    """
    return method if defense == "none" else f"{method}, {defense}, {knowledge}"


def sentences(records: Sequence[Measurement]) -> list[str]:
    """The result for a reader who is no specialist, a sentence for each attempt."""
    return [_sentence(test) for test in cells(records)]


def _sentence(test: Cell) -> str:
    whole = test.at("psnr", ACCUMULATED)
    if whole is not None:
        value, guess = whole.estimate.value, whole.chance
        if value >= CLOSE_DB:
            says = "The images were rebuilt: they look like the true ones"
        elif value >= CLEAR_DB:
            says = "The images were rebuilt well enough to be recognised"
        elif value >= guess + 2:
            says = "Parts of the images were rebuilt"
        else:
            says = "The images were not rebuilt"
        return (
            f"{title(test)}: {says}. PSNR {short(value)} dB ({_certainty(whole.estimate)}); the "
            f"mean colour alone scores {short(guess)} dB."
        )
    whole = test.at("columns", ACCUMULATED)
    if whole is None:
        loss = test.at("loss", ACCUMULATED)
        if loss is None:
            raise InputError(
                f"the records of {title(test)} lack both a score and a loss; run it again"
            )
        return (
            f"{title(test)}: {count(loss.estimate.n)} records were searched for; the loss ended at "
            f"{short(loss.estimate.value)}. The true records are not known here, so nothing says "
            "how near these are."
        )
    return (
        f"{title(test)}: {percent(whole.estimate.value)} of the columns of {whole.estimate.n} "
        f"records were rebuilt right; guessing the most frequent values gives "
        f"{percent(whole.chance)}."
    )


def _certainty(estimate: Estimate) -> str:
    """How far a mean over images reaches; a single one says nothing of others."""
    if estimate.n == 1:
        return "1 image, so no interval"
    ends = f"{short(estimate.low)} to {short(estimate.high)}"
    return f"95 % interval {ends}, {count(estimate.n)} images"


def draw_curves(tests: Sequence[Cell], metric: str, *, name: str) -> Markup | None:
    """A figure over the iterations, a line for each attempt.

    Args:
        tests: the attempts.
        metric: ``"loss"`` (on a log axis where it falls far) or ``"psnr"``.
        name: a word that no other chart of the page has.
    """
    drawn = [test.at(metric, ACCUMULATED) for test in tests]
    # By the attempt's number, which is that of its line in the legend.
    curves = {at: one.curve for at, one in enumerate(drawn) if one is not None and one.curve}
    if not curves:
        return None
    with chart(name) as (axes, svg):
        if metric == "loss":
            _loss_axis(axes, [value for curve in curves.values() for _, value in curve])
        for number, curve in curves.items():
            axes.plot(
                *zip(*curve, strict=True),
                color=_COLOURS[number % len(_COLOURS)],
                ls=_LINES[number // len(_COLOURS) % len(_LINES)],
                lw=2,
            )
        axes.set_xlabel("iteration")
        axes.grid(visible=False, axis="x")
    return svg[0]


def _loss_axis(axes: Axes, values: Sequence[float]) -> None:
    """By logarithms where the loss falls far, with labels that say enough and find room."""
    low, high = min(values), max(values)
    if low > 0 and high >= _FAR * low:
        axes.set_yscale("log")
        subs = (1, 2, 5) if high < 100 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_position((0.15, 0.19, 0.8, 0.785))


def _tick(value: float) -> str:
    """With up to two digits after the point: a chart's further ones are cut off."""
    plain = f"{value:.12g}"
    if "e" not in plain and len(plain.partition(".")[2]) <= 2:
        return plain
    digits, exponent = f"{value:.5e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    after = len(digits.partition(".")[2])
    if after > 2:
        digits, exponent = digits.replace(".", ""), str(int(exponent) - after)
    return f"{digits}e{int(exponent)}"


def line_style(number: int) -> tuple[str, str]:
    """Colour and dash of the legend's line, as CSS has them."""
    colours = ("--accent", "--ink", "--muted")
    dashes = ("solid", "dashed", "dotted", "dashed")
    return colours[number % 3], dashes[number // 3 % 4]
