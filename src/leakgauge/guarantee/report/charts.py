"""Charts of an audited guarantee: scores of releases, and epsilon over noise or clip."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.wording import short
from leakgauge.results.measurements import Estimate, Measurement

_LOWEST = 0.1
"""The log axis of a chart ends here: a bound of 0 has no place on it."""

_DASHES = {"pair_exact": "-", "mechanism_classic": (0, (4, 3)), "largest_showable": (0, (1, 2))}


def draw_scores(measurement: Measurement, *, name: str) -> Markup | None:
    """Return the scores under both hypotheses (Li et al., CCS 2024, Figure 7), or None.

    Args:
        measurement: of epsilon.
        name: a word that no other chart of the page has.
    """
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
        value: of noise or clip.
        epsilon: measured.
        in_sample: by the paper's estimate.
        theory: known without a measurement, by name.
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
        name: a word that no other chart of the page has.
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
    """Return the values at which the trials and not the mechanism are the limit."""
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
