"""Charts of leakage along a setting of a grid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from leakgauge.core.knowledge import STATIC
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.compare import (
    Group,
    PaperFigure,
    distinguishing,
    follows,
    title_of,
    varying,
)
from leakgauge.report.wording import number, plain
from leakgauge.results.measurements import ACCUMULATED, Estimate
from leakgauge.results.metrics import Metric

_AXES = (
    *("iterations", "local_steps", "epochs", "rounds", "batch_size", "shadow", "trials", "lr"),
    *("matching", "defense", "adversary", "data", "ask", "method"),
)
"""The horizontal axis of a chart is the first of these settings that varies."""

_APART = 4.0  # points between a tick and a mark where it has a static and an adaptive one
_LOG_FROM = 8.0  # ratio of the largest to the smallest number from which the axis is logarithmic


@dataclass(frozen=True)
class Mark:
    """A point of a chart.

    Attributes:
        value: value of the setting along the axis.
        knowledge: knowledge of the adversary.
        ours: mean of the metric over the seeds.
        paper: the paper's figure; None without one.
    """

    value: Any
    knowledge: str
    ours: Estimate
    paper: float | None


@dataclass(frozen=True)
class SweepChart:
    """One chart along a setting, with all other settings fixed.

    Attributes:
        axis: the setting along the horizontal axis.
        metric: the metric of all marks.
        title: the other settings that vary in the grid, in words.
        marks: in the order of the axis.
    """

    axis: str
    metric: Metric
    title: str
    marks: tuple[Mark, ...]

    @property
    def values(self) -> list[Any]:
        """The different values along the axis, numbers ascending."""
        distinct: list[Any] = []
        for mark in self.marks:
            if mark.value not in distinct:
                distinct.append(mark.value)
        return sorted(distinct) if self.numeric else distinct

    @property
    def numeric(self) -> bool:
        """Whether the axis has numbers."""
        return all(
            isinstance(mark.value, int | float) and not isinstance(mark.value, bool)
            for mark in self.marks
        )

    @property
    def two_sided(self) -> bool:
        """Whether the chart shows both static and adaptive adversaries."""
        return len({mark.knowledge for mark in self.marks}) > 1

    @property
    def says(self) -> str:
        """The chart in words, for screen readers."""
        ours = "; ".join(
            f"{plain(mark.value)}{f' ({mark.knowledge})' if self.two_sided else ''}: "
            f"{number(mark.ours.value)}"
            + ("" if mark.paper is None else f" (the paper: {number(mark.paper)})")
            for mark in self.marks
        )
        return f"{self.metric.label} along {self.axis.replace('_', ' ')}. {ours}."


def sweep_charts(
    cells: Sequence[Group],
    paper: Sequence[PaperFigure],
    metrics: Mapping[str, Metric],
    *,
    apart: Sequence[str] = (),
) -> list[SweepChart]:
    """Return the charts of one grid; none if only the seed varies.

    Args:
        cells: the grid's cells, grouped over their seeds.
        paper: the paper's figures.
        metrics: metrics by name; charts show the first headline metric that the grid measured.
        apart: settings that distinguish the cells of all grids of the page, for the titles.
    """
    settings = [group.settings for group in cells]
    names = varying(settings)
    metric = headline_of(cells, metrics)
    if not names or metric is None:
        return []
    axis = next((name for name in _AXES if name in names), names[0])
    others = [name for name in names if not follows(name, axis, settings)]
    few = [name for name in apart if name in others or name not in names]
    titled = distinguishing(settings, few, others)
    by_title: dict[str, list[Mark]] = {}
    for group in cells:
        if metric in group.figures:
            theirs = _paper(group, metric, paper)
            mark = Mark(group.settings[axis], group.knowledge, group.figures[metric], theirs)
            by_title.setdefault(title_of(group.settings, titled), []).append(mark)
    made = [
        SweepChart(axis, metrics[metric], title, tuple(marks)) for title, marks in by_title.items()
    ]
    return [one for one in made if len(one.values) > 1]


def headline_of(cells: Sequence[Group], metrics: Mapping[str, Metric]) -> str | None:
    """Return the name of the first headline metric that was measured."""
    measured = {name for group in cells for name in group.figures}
    named = (name for name, metric in metrics.items() if metric.headline and name in measured)
    return next(named, None)


def limits_of(charts: Sequence[SweepChart]) -> tuple[float, float]:
    """Return vertical limits that fit all marks of several charts."""
    chances = [one.metric.chance for one in charts if one.metric.chance is not None]
    drawn = chances[:1]
    for mark in (mark for one in charts for mark in one.marks):
        drawn += [mark.ours.low, mark.ours.high, *([] if mark.paper is None else [mark.paper])]
    if not drawn or (chances and all(one.metric.is_share for one in charts)):
        return math.floor(10 * (min(drawn, default=0.0) - 0.02)) / 10, 1.02
    return math.floor(min(drawn)) - 1, math.ceil(max(drawn)) + 1


def draw(sweep: SweepChart, *, limits: tuple[float, float], name: str) -> Markup:
    """Return a chart as inline SVG; names along the axis are numbers, which the page explains.

    Args:
        sweep: the chart.
        limits: limits of the vertical axis.
        name: prefix of ids, unique on the page.
    """
    places = _places(sweep)
    with chart(name) as (axes, svg):
        if sweep.metric.chance is not None:
            axes.axhline(sweep.metric.chance, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for knowledge in dict.fromkeys(mark.knowledge for mark in sweep.marks):
            _draw_side(axes, sweep, knowledge, places)
        axes.set_ylim(*limits)
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = [places[i] for i in range(len(sweep.values))]
        words = (f"{v:g}" if sweep.numeric else str(i) for i, v in enumerate(sweep.values, start=1))
        axes.set_xticks(ticks, list(words))
        step = min(b - a for a, b in pairwise(ticks))
        pad = max(0.06 * (ticks[-1] - ticks[0]), 0.26 * step)
        axes.set_xlim(ticks[0] - pad, ticks[-1] + pad)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(sweep.axis.replace("_", " ") + (" (log scale)" if _is_log(sweep) else ""))
    return svg[0]


def _draw_side(axes: Axes, sweep: SweepChart, knowledge: str, places: Sequence[float]) -> None:
    marks = sorted(
        (mark for mark in sweep.marks if mark.knowledge == knowledge),
        key=lambda mark: sweep.values.index(mark.value),
    )
    others = [mark.value for mark in sweep.marks if mark.knowledge != knowledge]
    x = [places[sweep.values.index(mark.value)] for mark in marks]
    if sweep.numeric:
        axes.plot(x, [mark.ours.value for mark in marks], color=ACCENT, linewidth=2)
    for at, mark in zip(x, marks, strict=True):
        aside = _aside(axes, knowledge) if mark.value in others else axes.transData
        ends = [mark.ours.low, mark.ours.high]
        axes.plot([at, at], ends, color=ACCENT, linewidth=1.6, alpha=0.6, transform=aside)
        _draw_mark(axes, at, mark, hollow=sweep.two_sided and knowledge == STATIC, aside=aside)


def _draw_mark(axes: Axes, at: float, mark: Mark, *, hollow: bool, aside: Transform) -> None:
    if mark.paper is not None:
        bar: dict[str, Any] = {"marker": "_", "markersize": 17, "markeredgewidth": 2.4}
        axes.plot([at], [mark.paper], color=INK, transform=aside, **bar)
    dot: dict[str, Any] = {"marker": "o", "markersize": 6.5, "markeredgewidth": 1.6}
    inside = "none" if hollow else ACCENT
    axes.plot([at], [mark.ours.value], color=ACCENT, markerfacecolor=inside, transform=aside, **dot)


def _aside(axes: Axes, knowledge: str) -> Transform:
    """Return the data's transform, shifted by a few points: static marks left, adaptive right."""
    figure = axes.get_figure()
    assert figure is not None
    points = _APART * (-1 if knowledge == STATIC else 1)
    return axes.transData + ScaledTranslation(points / 72, 0, figure.dpi_scale_trans)


def _places(sweep: SweepChart) -> list[float]:
    """Return the places of the values: numbers by their size, names in even steps."""
    if not sweep.numeric:
        return [float(i) for i in range(len(sweep.values))]
    return [math.log(value) if _is_log(sweep) else float(value) for value in sweep.values]


def _is_log(sweep: SweepChart) -> bool:
    values = sweep.values if sweep.numeric else [0]
    return min(values) > 0 and max(values) / min(values) >= _LOG_FROM


def _paper(group: Group, metric: str, paper: Sequence[PaperFigure]) -> float | None:
    values = (
        stated.value
        for stated in paper
        if (stated.metric, stated.round) == (metric, ACCUMULATED)
        and stated.knowledge == group.knowledge
        and set(stated.cells) & set(group.keys)
    )
    return next(values, None)
