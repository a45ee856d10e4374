"""Charts of an attempt's loss and PSNR over the iterations."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.inversion.metrics.table import LOSS
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.grouping import Test

_FAR = 3.0  # first value over last from which the loss has a logarithmic axis

_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))
_COLOURS = (ACCENT, INK, MUTED)


def draw_curves(tests: Sequence[Test], metric: str, *, name: str) -> Markup | None:
    """Return a metric over the iterations, a line for each attempt; None without curves.

    Args:
        tests: the attempts.
        metric: ``"loss"`` (on a log axis where it falls far) or ``"psnr"``.
        name: a word that no other chart of the page has.
    """
    measured = [test.at(metric) for test in tests]
    # By the attempt's number, which is that of its line in the legend.
    curves = {at: one.curve for at, one in enumerate(measured) if one is not None and one.curve}
    if not curves:
        return None
    with chart(name) as (axes, svg):
        if metric == LOSS:
            _loss_axis(axes, [value for curve in curves.values() for _, value in curve])
        for number, curve in curves.items():
            axes.plot(*zip(*curve, strict=True), **drawn_style(number))
        axes.set_xlabel("iteration")
        axes.grid(visible=False, axis="x")
    return svg[0]


def _loss_axis(axes: Axes, values: Sequence[float]) -> None:
    """Make the axis logarithmic where the loss falls far, with labels that fit beside it."""
    low, high = min(values), max(values)
    if low > 0 and high >= _FAR * low:
        axes.set_yscale("log")
        subs = (1, 2, 5) if high < 100 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_position((0.15, 0.19, 0.8, 0.785))


def _tick(value: float) -> str:
    """A label with up to two digits after the point: a chart cuts off further ones."""
    plain = f"{value:.12g}"
    if "e" not in plain and len(plain.partition(".")[2]) <= 2:
        return plain
    digits, exponent = f"{value:.5e}".split("e")
    digits = digits.rstrip("0").rstrip(".")
    after = len(digits.partition(".")[2])
    if after > 2:
        digits, exponent = digits.replace(".", ""), str(int(exponent) - after)
    return f"{digits}e{int(exponent)}"


def drawn_style(number: int) -> dict[str, Any]:
    """Return colour, dash and width of a line in a chart, as matplotlib takes them."""
    dash = _LINES[number // len(_COLOURS) % len(_LINES)]
    return {"color": _COLOURS[number % len(_COLOURS)], "ls": dash, "lw": 2}


def line_style(number: int) -> tuple[str, str]:
    """Return colour and dash of an attempt's line in the legend, as CSS writes them."""
    colours = ("--accent", "--ink", "--muted")
    dashes = ("solid", "dashed", "dotted", "dashed")
    return colours[number % 3], dashes[number // 3 % 4]
