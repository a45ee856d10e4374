"""Charts of an audited guarantee: scores of releases, and epsilon over noise or clip."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.guarantee.metrics import EPSILON, IN_SAMPLE
from leakgauge.guarantee.report.audited import AuditedGuarantee, audited_guarantee
from leakgauge.guarantee.report.sentences import BIASED, headline
from leakgauge.guarantee.spec import QUESTION
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.compare import (
    Comparison,
    FinishedCell,
    Group,
    along_axis,
    distinguishing_names,
    title_of,
)
from leakgauge.report.section import Badge, Chart
from leakgauge.report.wording import count, plain, short
from leakgauge.results.measurements import Estimate, Measurement

_LOWEST = 0.1
"""Lower end of a chart's log axis; a bound of 0 is drawn here."""

_DASHES = {"pair_exact": "-", "mechanism_classic": (0, (4, 3)), "largest_showable": (0, (1, 2))}


def draw_scores(measurement: Measurement, *, name: str) -> Markup | None:
    """Return the scores behind an epsilon (Li et al., CCS 2024, Figure 7); None without any."""
    histogram = measurement.histogram
    if histogram is None:
        return None
    with chart(name) as (axes, svg):
        for counts, colour in ((histogram.null, MUTED), (histogram.alternative, ACCENT)):
            axes.stairs(counts, histogram.edges, fill=True, color=colour, alpha=0.25)
            axes.stairs(counts, histogram.edges, color=colour, linewidth=1.6)
        axes.set_xlabel("score of a release")
        axes.grid(visible=False, axis="x")
    return svg[0]


@dataclass(frozen=True)
class AxisPoint:
    """The epsilons at one value of noise or clip.

    Attributes:
        value: value of noise or clip.
        epsilon: measured epsilon.
        in_sample: the paper's estimate.
        theory: epsilons that are known without a measurement, by name.
    """

    value: float
    epsilon: Estimate
    in_sample: Estimate
    theory: Mapping[str, float]


def draw_theory(points: Sequence[AxisPoint], axis: str, *, name: str) -> Markup:
    """Return measured against promised epsilon (Li et al., CCS 2024, Figure 8); log scale.

    Args:
        points: with ascending values.
        axis: what varies: ``"noise"`` or ``"clip"``.
        name: name that is unique on the page.
    """
    with chart(name) as (axes, svg):
        axes.set_yscale("log")
        _draw_promises(axes, points)
        _draw_measured(axes, points)
        _label_axes(axes, [point.value for point in points], axis)
    return svg[0]


def theory_in_words(points: Sequence[AxisPoint], axis: str) -> str:
    """Return ``draw_theory`` in words."""
    parts = "; ".join(
        f"{axis} {point.value:g}: measured {short(point.epsilon.value)}, by the paper's estimate "
        f"{short(point.in_sample.value)}, promised {short(point.theory['pair_exact'])}"
        for point in points
    )
    return f"Epsilon along {axis}. {parts}."


def saturated_at(points: Sequence[AxisPoint]) -> list[float]:
    """Return the values where the number of trials is the limit."""
    return [
        point.value
        for point in points
        if math.isclose(point.in_sample.value, point.theory["largest_showable"], rel_tol=1e-6)
    ]


def _draw_promises(axes: Axes, points: Sequence[AxisPoint]) -> None:
    x = [point.value for point in points]
    for key, line in _DASHES.items():
        axes.plot(x, [point.theory[key] for point in points], color=MUTED, ls=line, lw=1.6)
    per_attribute = [point.theory["per_attribute_classic"] for point in points]
    axes.plot(x, per_attribute, color=INK, marker="_", markersize=12, mew=2.2, ls="")


def _draw_measured(axes: Axes, points: Sequence[AxisPoint]) -> None:
    for point in points:
        low = max(point.epsilon.low, _LOWEST)
        axes.plot([point.value] * 2, [low, max(point.epsilon.value, low)], color=ACCENT, lw=1.8)
    paper = [max(point.in_sample.value, _LOWEST) for point in points]
    axes.plot([point.value for point in points], paper, color=ACCENT, marker="o", markersize=6,
              ls="")  # fmt: skip


def _label_axes(axes: Axes, x: Sequence[float], axis: str) -> None:
    axes.set_xlabel(axis)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.grid(visible=False, axis="x")


_AXES = ("noise", "clip")

_KEYS_OF_EPSILON = {
    "ours": "the paper's estimate, on our releases",
    "whole-bar": "lower bound to best guess",
    "paper": "the paper's yardstick (textbook epsilon over N)",
    "line": "exact promise for the record",
    "chance": "textbook formula",
    "majority": "largest that the trials can show",
}
_KEYS_OF_SCORES = {"null": "first value", "alternative": "second value"}


def badge(group: Group) -> Badge | None:
    """Return whether the means of a grid's cells break the promise; None without an epsilon."""
    if EPSILON not in group.means:
        return None
    audited = AuditedGuarantee(group.settings, group.means)
    level, words = headline(audited)
    return Badge(level, words, float(level == "strong"), broken=audited.violated)


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return epsilon over noise and over clip, or the scores of each cell if neither varies.

    The scores are those of a cell's first seed. The first chart has the legend of all.

    Args:
        comparison: the finished cells.
        groups: the cells by their settings, over seeds.
    """
    audited = [group for group in groups if EPSILON in group.figures]
    return _along_axes(comparison, audited) or _of_scores(comparison, audited)


def _along_axes(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    made: list[Chart] = []
    gaussian = [group for group in groups if group.settings.get("clip") is not None]
    for axis in _AXES:
        for title, along in along_axis(gaussian, axis).items():
            points = [_point(comparison.cells, group, axis) for group in along]
            legend = Markup("") if made else _legend(_KEYS_OF_EPSILON)
            made.append(_epsilon_chart(points, axis, title, legend, number=len(made)))
    return made


def _epsilon_chart(
    points: Sequence[AxisPoint], axis: str, title: str, legend: Markup, *, number: int
) -> Chart:
    limited = saturated_at(points)
    limit = f"At {axis} {plain(limited)} no trial went wrong: the trials are the limit."
    return Chart(
        caption=f"Epsilon along {axis}{f': {title}' if title else ''}",
        says=theory_in_words(points, axis),
        svg=draw_theory(points, axis, name=f"{QUESTION}-{axis}-{number}"),
        legend=legend,
        note=" ".join([*([limit] if limited else []), *([] if number else [BIASED])]),
    )


def _of_scores(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    names = distinguishing_names([group.settings for group in groups])
    return [
        _scores_chart(comparison.cells[group.keys[0]], names, number)
        for number, group in enumerate(groups)
    ]


def _scores_chart(played: FinishedCell, names: Sequence[str], number: int) -> Chart:
    audited = audited_guarantee(played.settings, played.measurements)
    title = title_of(played.settings, names)
    trials, low = count(played.settings["trials"]), short(audited.epsilon.estimate.low)
    return Chart(
        caption=f"Scores under both values{f': {title}' if title else ''}",
        says=f"{trials} scores; epsilon is at least {low}.",
        svg=draw_scores(audited.epsilon, name=f"{QUESTION}-scores-{number}"),
        legend=Markup("") if number else _legend(_KEYS_OF_SCORES),
    )


def _legend(keys: Mapping[str, str]) -> Markup:
    entry = Markup('<span class="key {}">{}</span>')
    return Markup("").join(entry.format(*one) for one in keys.items())


def _point(cells: Mapping[str, FinishedCell], group: Group, axis: str) -> AxisPoint:
    measurements = [one for key in group.keys for one in cells[key].measurements]
    theories = [one.theory for one in measurements if one.metric == EPSILON]
    return AxisPoint(
        float(group.settings[axis]),
        group.figures[EPSILON],
        group.figures[IN_SAMPLE],
        {name: float(np.mean([one[name] for one in theories])) for name in theories[0]},
    )
