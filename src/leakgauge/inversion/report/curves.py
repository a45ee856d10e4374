"""Charts of loss and PSNR over the iterations, and of time over the local steps."""

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.inversion.metrics.table import LOSS
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.compare import Comparison, Group, title_of, varying
from leakgauge.report.grouping import Test
from leakgauge.report.section import Chart
from leakgauge.report.wording import short
from leakgauge.results.measurements import SECONDS

_FAR = 3.0  # smallest ratio of high to low for a logarithmic axis of the loss

_LINES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))
_COLOURS = (ACCENT, INK, MUTED)


def draw_curves(tests: Sequence[Test], metric: str, *, name: str) -> Markup | None:
    """Return a chart of a metric over the iterations, a line per attempt; None without curves.

    Args:
        tests: attempts.
        metric: ``"loss"`` (on a log axis if it falls far) or ``"psnr"``.
        name: unique name of the chart on the page.
    """
    measured = [test.at(metric) for test in tests]
    # By the attempt's number, which selects its line style in the legend.
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
    """Make the axis logarithmic if the loss falls far, with labels that fit in the margin."""
    low, high = min(values), max(values)
    if low > 0 and high >= _FAR * low:
        axes.set_yscale("log")
        subs = (1, 2, 5) if high < 100 * low else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    axes.set_position((0.15, 0.19, 0.8, 0.785))


def _tick(value: float) -> str:
    """Return a label with up to two digits after the point: a chart cuts off further ones."""
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


Way = tuple[str, bool]
"""Method, and whether it simulates the local steps."""

Times = Mapping[Way, Mapping[int, float]]
"""Seconds by way and number of local steps."""

_FREE = ("method", "simulate", "local_steps", "batch_size", "labels")
"""Settings that may differ between cells with compared times; all others must be equal."""


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return charts of the time over local steps, if both simulation and one batch were run.

    Args:
        comparison: not used.
        groups: cells by their settings, combined over seeds.

    References:
        Xu et al., AGIC, SRDS 2022, Figure 8b.
    """
    compared = {title: times for title, times in _alike(groups).items() if _gains(times)}
    ways = list(dict.fromkeys(way for times in compared.values() for way in times))
    return [
        Chart(
            caption=f"Time of a reconstruction, s{f': {title}' if title else ''}",
            says=" ".join(_gains(times)),
            svg=_drawn(times, ways, name=f"speed-{number}"),
            legend=_legend(ways),
            note=" ".join(_gains(times)),
        )
        for number, (title, times) in enumerate(compared.items())
    ]


def _alike(groups: Sequence[Group]) -> dict[str, Times]:
    """Return times of cells that agree in all other settings, by a title of these settings."""
    timed = [group for group in groups if SECONDS in group.means]
    names = [one for one in varying([group.settings for group in timed]) if one not in _FREE]
    found: dict[str, dict[Way, dict[int, float]]] = {}
    titles: dict[str, str] = {}
    for group in timed:
        own = group.settings
        rest = {name: value for name, value in own.items() if name not in _FREE}
        key = json.dumps([rest, group.knowledge], sort_keys=True)
        titles[key] = title_of(own, names)
        way = str(own["method"]), bool(own["simulate"])
        times = found.setdefault(key, {}).setdefault(way, {})
        times[int(own["local_steps"])] = group.means[SECONDS].estimate.value
    return {titles[key]: ways for key, ways in found.items()}


def _gains(times: Times) -> list[str]:
    """Return sentences on the speed of one batch against simulation, most steps first."""
    pairs = product(
        [(name, by) for (name, simulates), by in times.items() if not simulates],
        [(name, by) for (name, simulates), by in times.items() if simulates],
    )
    return [
        f"With {steps} local steps, {batch} as one batch is {short(long[steps] / quick[steps])} "
        f"times as fast as {other} by simulation."
        for (batch, quick), (other, long) in pairs
        for steps in sorted(set(quick) & set(long), reverse=True)
    ]


def _drawn(times: Times, ways: Sequence[Way], *, name: str) -> Markup:
    """Return the chart as inline SVG, with two logarithmic axes."""
    steps = sorted({step for by in times.values() for step in by})
    with chart(name) as (axes, svg):
        for way, by in times.items():
            points = sorted(by.items())
            axes.plot(*zip(*points, strict=True), marker="o", **drawn_style(ways.index(way)))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(steps, [str(step) for step in steps])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("local steps (log scale)")
        axes.set_position((0.15, 0.19, 0.8, 0.785))
    return svg[0]


def _legend(ways: Sequence[Way]) -> Markup:
    shown = []
    for number, (method, simulates) in enumerate(ways):
        colour, dash = line_style(number)
        style = f"width:26px;border-top:2px {dash} var({colour})"
        key = Markup('<span class="key line"><i style="{}"></i>{}</span>')
        shown.append(key.format(style, f"{method}, {'simulated' if simulates else 'one batch'}"))
    return Markup("").join(shown)
