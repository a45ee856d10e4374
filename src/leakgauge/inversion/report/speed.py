"""The time of a reconstruction over the local steps: one batch against simulation (Figure 8b)."""

import json
from collections.abc import Mapping, Sequence
from itertools import product

from markupsafe import Markup
from matplotlib.ticker import NullLocator

from leakgauge.inversion.report.curves import drawn_style, line_style
from leakgauge.report.charts import chart
from leakgauge.report.compare import Comparison, Group, title_of, varying
from leakgauge.report.section import Chart
from leakgauge.report.wording import short
from leakgauge.results.measurements import SECONDS

Way = tuple[str, bool]
"""A method, and whether it simulates the local steps."""

Times = Mapping[Way, Mapping[int, float]]
"""Seconds by the number of local steps, of each way."""

_FREE = ("method", "simulate", "local_steps", "batch_size", "labels")
"""Settings in which cells may differ whose times are compared; the others have to be the same."""


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return the time along the local steps; nothing where no simulation stands beside a batch.

    Args:
        groups: the cells by their settings, over seeds.

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
    """The times of cells that agree in all other settings, by what tells them from others."""
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
    """How many times as fast one batch is as simulation, in words, most steps first."""
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
    """The chart as inline SVG, both axes logarithmic."""
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
