"""The ROC of a test as a chart."""

import math
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, NullLocator

from leakgauge.report.charts import ACCENT, MUTED, chart

_STEP = 0.004  # of the axes' length: nearer points look like one

Curve = Sequence[tuple[float, float]]
"""Pairs of false and true positive rates, ascending."""


def roc(curve: Curve, *, name: str) -> Markup:
    """Return the ROC, the false positive rate on a log axis.

    Args:
        curve: its points.
        name: a word that no other chart of the page has.
    """
    left = _lowest_rate(curve)
    points = _thinned(_from(left, curve), left)
    with chart(name) as (axes, svg):
        axes.set_xscale("log")
        axes.plot(*zip(*points, strict=True), color=ACCENT, linewidth=2)
        diagonal = [left ** (1 - step / 60) for step in range(61)]
        axes.plot(diagonal, diagonal, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.set_xlim(left, 1.0)
        axes.set_ylim(0, 1.02)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:g} %"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: f"{100 * rate:.0f} %"))
        axes.set_xlabel("false positive rate (log scale)")
    return svg[0]


def _lowest_rate(curve: Curve) -> float:
    """The power of ten at or below the smallest false positive rate that was seen."""
    smallest = min((fpr for fpr, _ in curve if fpr > 0), default=1e-2)
    return float(10.0 ** max(-4, min(-2, math.floor(math.log10(smallest) + 1e-9))))


def _from(left: float, curve: Curve) -> list[tuple[float, float]]:
    """The curve from ``left`` on; it starts there as high as it is there."""
    start = max((tpr for fpr, tpr in curve if fpr <= left), default=0.0)
    return [(left, start), *(point for point in curve if point[0] > left)]


def _thinned(points: Curve, left: float) -> list[tuple[float, float]]:
    """The points, without those that look like the one before."""
    kept = [points[0]]
    for point in points[1:-1]:
        across = abs(math.log(point[0]) - math.log(kept[-1][0])) / -math.log(left)
        if max(across, abs(point[1] - kept[-1][1])) >= _STEP:
            kept.append(point)
    return [*kept, points[-1]] if len(points) > 1 else kept
