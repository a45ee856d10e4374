"""Charts of a test: a metric by round, the ROC, and leakage against utility."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inference.report.defenses import DefenseTable, Point
from leakgauge.inference.report.titles import covers_all_rounds
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.charts import roc as draw_roc
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.runs.spec import NONE

_MARKERS = 40  # maximum number of rounds with dots
_CHANCE: dict[str, Any] = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (4, 3))}


def over_rounds(test: Test, metric: str, *, floor: float, name: str) -> Markup | None:
    """Return a chart of a metric by round with intervals, chance and the figure of all rounds.

    A second line shows the plain sum of the rounds so far.

    Args:
        test: the test.
        metric: one of its metrics.
        floor: lower end of the axis, the same for all tests to make charts comparable.
        name: unique name of the chart on the page.
    """
    single, whole = test.single(metric), test.whole(metric)
    if not single:
        return None
    with chart(name) as (axes, svg):
        rounds = [int(one.round) for one in single]
        _draw_rounds(axes, rounds, single)
        sums = test.added_up(metric)
        counts, values = [count for count, _ in sums], [one.estimate.value for _, one in sums]
        axes.plot(counts, values, color=INK, linewidth=1.4, marker="s", markersize=3.5, alpha=0.8)
        ticks = {float(when): str(when) for when in rounds[:: math.ceil(len(rounds) / 8)]}
        if whole is not None and covers_all_rounds(whole):
            right = rounds[-1] + max(1.0, 0.09 * (rounds[-1] - rounds[0]))
            _draw_whole(axes, right, whole.estimate)
            ticks[right] = "all"
        axes.axhline(single[0].chance, **_CHANCE)
        axes.set_xticks(list(ticks), list(ticks.values()))
        pad = 0.05 * max(1.0, max(ticks) - min(ticks)) + 0.2
        axes.set_xlim(min(ticks) - pad, max(ticks) + pad)
        axes.set_ylim(floor, 1.02)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("round")
    return svg[0]


def roc(test: Test, *, name: str) -> Markup | None:
    """Return the ROC of all rounds together, the false positive rate on a log axis."""
    one = test.whole("auroc")
    if one is None or not one.curve:
        return None
    return draw_roc(one.curve, name=name)


def common_floor(tests: Sequence[Test], metric: str) -> float:
    """Return a round lower end of the axis below every interval and chance level."""
    drawn = [one for test in tests for one in (*test.single(metric), test.whole(metric))]
    values = [min(one.estimate.low, one.chance) for one in drawn if one is not None]
    return math.floor(10 * (min(values, default=0.5) - 0.02)) / 10


def _draw_rounds(axes: Axes, rounds: Sequence[int], single: Sequence[Measurement]) -> None:
    ends = [(one.estimate.low, one.estimate.value, one.estimate.high) for one in single]
    low, values, high = zip(*ends, strict=True)
    if len(rounds) == 1:
        axes.plot([rounds[0]] * 2, [low[0], high[0]], color=ACCENT, linewidth=8, alpha=0.25)
    else:
        axes.fill_between(rounds, low, high, color=ACCENT, alpha=0.18, linewidth=0)
    marker = "o" if len(rounds) <= _MARKERS else ""
    axes.plot(rounds, values, color=ACCENT, linewidth=2, marker=marker, markersize=4.5)


def _draw_whole(axes: Axes, x: float, estimate: Estimate) -> None:
    axes.axhline(estimate.value, color=INK, linewidth=0.8, alpha=0.45)
    axes.plot([x, x], [estimate.low, estimate.high], color=INK, linewidth=1.6)
    axes.plot([x], [estimate.value], color=INK, marker="D", markersize=6, linestyle="")


_SIZE = (6.6, 4.3)  # inches
_MARK = (17.0, 11.0)  # space for a number next to its point, in pixels


def tradeoff(table: DefenseTable, *, name: str) -> Markup | None:
    """Return a chart of AUROC against utility, with a point for each defense and adversary.

    Args:
        table: defenses of one game.
        name: unique name of the chart on the page.
    """
    points, words = table.points, table.words
    if not points or words is None:
        return None
    about = f"test {words.name} of the model", 0.5, table.constants
    return draw(points, *about, name=name, percent=words.is_share)


def draw(
    points: Sequence[Point],
    across: str,
    chance: float,
    constants: Sequence[float],
    *,
    name: str,
    percent: bool = False,
) -> Markup:
    """Return a chart of leakage (upwards) against utility (rightwards) with numbered points.

    Args:
        points: points, at least one.
        across: label of the utility axis.
        chance: leakage of guessing.
        constants: utilities of the best constant answers.
        name: unique name of the chart on the page.
        percent: whether the utility is in per cent.
    """
    with chart(name, _SIZE) as (axes, svg):
        axes.axhline(chance, **_CHANCE)
        for constant in constants:
            axes.axvline(constant, color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
        for point in points:
            _draw_point(axes, point)
        # a wide interval may leave the picture, since it would squeeze all points
        room = statistics.median([p.utility.high - p.utility.low for p in points])
        sides = [p.utility.value for p in points] + [*constants]
        pad = max(0.01, room, 0.08 * (max(sides) - min(sides)))
        axes.set_xlim(min(sides) - pad, max(sides) + pad)
        lowest = min(chance, *(p.leakage.low for p in points))
        axes.set_ylim(math.floor(10 * (lowest - 0.04)) / 10, 1.04)
        if percent:
            axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axes.set_xlabel(across)
        _draw_marks(axes, points)
    return svg[0]


def _draw_point(axes: Axes, point: Point) -> None:
    x, y = point.utility, point.leakage
    colour = INK if point.kind == NONE else ACCENT
    axes.plot([x.low, x.high], [y.value] * 2, color=colour, linewidth=1, alpha=0.4)
    axes.plot([x.value] * 2, [y.low, y.high], color=colour, linewidth=1.4, alpha=0.6)
    axes.plot(
        [x.value],
        [y.value],
        linestyle="",
        marker="D" if point.kind == NONE else "o",
        markersize=7,
        color=colour,
        markerfacecolor=colour if point.kind in (NONE, ADAPTIVE) else "none",
        markeredgewidth=1.6,
    )


def _draw_marks(axes: Axes, points: Sequence[Point]) -> None:
    """Draw the number of each point at the nearest free place."""
    centres = [axes.transData.transform((p.utility.value, p.leakage.value)) for p in points]
    taken = [(float(x), float(y)) for x, y in centres]
    around = [(r, turn * math.pi / 8) for r in range(14, 90, 12) for turn in range(16)]
    for point, (x, y) in zip(points, list(taken), strict=True):
        spots = [(r * math.cos(angle), r * math.sin(angle)) for r, angle in around]
        free = [
            (right, up)
            for right, up in spots
            if axes.bbox.x0 + 8 < x + right < axes.bbox.x1 - 8
            and axes.bbox.y0 + 7 < y + up < axes.bbox.y1 - 7
            and all(abs(x + right - a) > _MARK[0] or abs(y + up - b) > _MARK[1] for a, b in taken)
        ]
        right, up = free[0] if free else spots[0]
        taken.append((x + right, y + up))
        far = math.hypot(right, up) > 20
        line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4}
        axes.annotate(
            point.mark,
            (point.utility.value, point.leakage.value),
            xytext=(right, up),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=10.5,
            color=INK,
            arrowprops=line if far else None,
        )
