"""How leakage moves along a setting of a grid: its panels and their charts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.compare import STATIC, Group, PaperFigure, follows, varying
from leakgauge.report.wording import number, plain
from leakgauge.results.measurements import ACCUMULATED, Estimate
from leakgauge.results.metrics import Metric

_AXES = (
    "iterations",
    "local_steps",
    "epochs",
    "rounds",
    "batch_size",
    "shadow",
    "trials",
    "lr",
    "matching",
    "defense",
    "adversary",
    "data",
    "ask",
    "method",
)
"""What a chart is drawn along, if several settings vary: the first of these that does."""

_APART = 0.13  # of static and adaptive marks, of the step between two names
_LOG_FROM = 8.0  # the ratio of the largest to the smallest number from which the axis is a log one


@dataclass(frozen=True)
class Mark:
    """A point of a panel.

    Attributes:
        value: of the setting along the axis.
        knowledge: of the adversary.
        ours: the metric over the seeds.
        paper: the paper's, where it states one.
    """

    value: Any
    knowledge: str
    ours: Estimate
    paper: float | None


@dataclass(frozen=True)
class Panel:
    """One chart: what varies along it, all else being equal.

    Attributes:
        axis: the setting along it.
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
        found: list[Any] = []
        for mark in self.marks:
            if mark.value not in found:
                found.append(mark.value)
        return sorted(found) if self.numeric else found

    @property
    def numeric(self) -> bool:
        """Whether the axis has numbers."""
        return all(
            isinstance(mark.value, int | float) and not isinstance(mark.value, bool)
            for mark in self.marks
        )

    @property
    def two_sided(self) -> bool:
        """Whether static and adaptive adversaries stand beside each other."""
        return len({mark.knowledge for mark in self.marks}) > 1

    @property
    def says(self) -> str:
        """The panel in words, for readers who do not see it."""
        ours = "; ".join(
            f"{plain(mark.value)}{f' ({mark.knowledge})' if self.two_sided else ''}: "
            f"{number(mark.ours.value)}{_said(mark.paper)}"
            for mark in self.marks
        )
        return f"{self.metric.label} along {self.axis.replace('_', ' ')}. {ours}."


def panels(
    found: Sequence[Group], paper: Sequence[PaperFigure], metrics: Mapping[str, Metric]
) -> list[Panel]:
    """The panels of one grid; none where nothing but the seed varies.

    Args:
        found: the grid's cells over their seeds.
        paper: the paper's figures.
        metrics: by name; the first headline metric that the grid measured is shown.
    """
    settings = [group.settings for group in found]
    names = varying(settings)
    if not names:
        return []
    axis = next((name for name in _AXES if name in names), names[0])
    others = [name for name in names if not follows(name, axis, settings)]
    metric = _headline(found, metrics)
    if metric is None:
        return []
    by_title: dict[str, list[Mark]] = {}
    for group in found:
        if metric in group.figures:
            by_title.setdefault(_title(group.settings, others), []).append(
                Mark(
                    group.settings[axis],
                    group.knowledge,
                    group.figures[metric],
                    _paper(group, metric, paper),
                )
            )
    made = (Panel(axis, metrics[metric], title, tuple(at)) for title, at in by_title.items())
    return [panel for panel in made if len(panel.values) > 1]


def _headline(found: Sequence[Group], metrics: Mapping[str, Metric]) -> str | None:
    """The first headline metric that was measured, by name."""
    measured = {name for group in found for name in group.figures}
    named = (name for name, metric in metrics.items() if metric.headline and name in measured)
    return next(named, None)


def ends_of(shown: Sequence[Panel]) -> tuple[float, float]:
    """Ends for the axes of several panels of a grid that hold all that they draw."""
    chances = [panel.metric.chance for panel in shown if panel.metric.chance is not None]
    drawn = chances[:1]
    for mark in (mark for panel in shown for mark in panel.marks):
        drawn += [mark.ours.low, mark.ours.high, *([] if mark.paper is None else [mark.paper])]
    if not drawn or (chances and all(panel.metric.is_share for panel in shown)):
        return math.floor(10 * (min(drawn, default=0.0) - 0.02)) / 10, 1.02
    return math.floor(min(drawn)) - 1, math.ceil(max(drawn)) + 1


def draw(panel: Panel, *, ends: tuple[float, float], name: str) -> Markup:
    """The panel as inline SVG; names along the axis are numbered, and stand in the page.

    Args:
        panel: what to draw.
        ends: of the axis.
        name: a word that no other chart of the page has.
    """
    places = _places(panel)
    with chart(name) as (axes, svg):
        if panel.metric.chance is not None:
            axes.axhline(panel.metric.chance, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for knowledge in dict.fromkeys(mark.knowledge for mark in panel.marks):
            _draw_side(axes, panel, knowledge, places)
        axes.set_ylim(*ends)
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = [places[i] for i in range(len(panel.values))]
        words = [f"{v:g}" for v in panel.values] if panel.numeric else _numbers(panel)
        axes.set_xticks(ticks, words)
        pad = max(0.06 * (ticks[-1] - ticks[0]), 2 * _APART * _step(ticks))
        axes.set_xlim(ticks[0] - pad, ticks[-1] + pad)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(panel.axis.replace("_", " ") + (" (log scale)" if _is_log(panel) else ""))
    return svg[0]


def _draw_side(axes: Axes, panel: Panel, knowledge: str, places: Sequence[float]) -> None:
    marks = sorted(
        (mark for mark in panel.marks if mark.knowledge == knowledge),
        key=lambda mark: panel.values.index(mark.value),
    )
    aside = _APART * _step(places) * (-1 if knowledge == STATIC else 1)
    beside = [mark.value for mark in panel.marks if mark.knowledge != knowledge]
    x = [
        places[panel.values.index(mark.value)] + (aside if mark.value in beside else 0.0)
        for mark in marks
    ]
    for at, mark in zip(x, marks, strict=True):
        axes.plot([at, at], [mark.ours.low, mark.ours.high], color=ACCENT, linewidth=1.6, alpha=0.6)
        if mark.paper is not None:
            axes.plot([at], [mark.paper], color=INK, marker="_", markersize=17, markeredgewidth=2.4)
    hollow = panel.two_sided and knowledge == STATIC
    axes.plot(
        x,
        [mark.ours.value for mark in marks],
        color=ACCENT,
        linestyle="-" if panel.numeric else "",
        linewidth=2,
        marker="o",
        markersize=6.5,
        markerfacecolor="none" if hollow else ACCENT,
        markeredgewidth=1.6,
    )


def _places(panel: Panel) -> list[float]:
    """Where the values stand: numbers by their size, names in even steps."""
    if not panel.numeric:
        return [float(i) for i in range(len(panel.values))]
    return [math.log(value) if _is_log(panel) else float(value) for value in panel.values]


def _step(places: Sequence[float]) -> float:
    return min(b - a for a, b in pairwise(places))


def _is_log(panel: Panel) -> bool:
    values = panel.values if panel.numeric else [0]
    return min(values) > 0 and max(values) / min(values) >= _LOG_FROM


def _numbers(panel: Panel) -> list[str]:
    return [str(i) for i in range(1, len(panel.values) + 1)]


def _title(settings: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {plain(settings[name])}" for name in names)


def _paper(group: Group, metric: str, paper: Sequence[PaperFigure]) -> float | None:
    found = (
        stated.value
        for stated in paper
        if (stated.metric, stated.round) == (metric, ACCUMULATED)
        and stated.knowledge == group.knowledge
        and set(stated.cells) & set(group.keys)
    )
    return next(found, None)


def _said(paper: float | None) -> str:
    return "" if paper is None else f" (the paper: {number(paper)})"
