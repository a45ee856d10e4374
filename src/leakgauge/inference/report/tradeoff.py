"""The chart of defenses: leakage against the model's utility."""

import math
import statistics
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inference.report.defenses import DefenseTable, Point
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.runs.spec import NONE

_SIZE = (6.6, 4.3)  # inches
_MARK = (17.0, 11.0)  # the room of a number beside its point, in pixels


def tradeoff(table: DefenseTable, *, name: str) -> Markup | None:
    """Return AUROC against the model's utility, a numbered point for each defense and adversary.

    Args:
        table: the defenses of one game.
        name: a word that no other chart of the page has.
    """
    points, words = table.points, table.words
    if not points or words is None:
        return None
    across = f"test {words.name} of the model"
    return draw(
        points,
        across=across,
        chance=0.5,
        constants=table.constants,
        name=name,
        percent=words.is_share,
    )


def draw(
    points: Sequence[Point],
    *,
    across: str,
    chance: float,
    constants: Sequence[float],
    name: str,
    percent: bool = False,
) -> Markup:
    """Return leakage upwards against utility rightwards, a numbered point each.

    Args:
        points: at least one.
        across: the utility in words.
        chance: the leakage of guessing.
        constants: the utilities of the best constant answers.
        name: a word that no other chart of the page has.
        percent: whether the utility is shown in per cent.
    """
    with chart(name, _SIZE) as (axes, svg):
        axes.axhline(chance, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for constant in constants:
            axes.axvline(constant, color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
        for point in points:
            _draw_point(axes, point)
        # One wide interval would squeeze all points, so it may run out of the picture.
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
    """The points' numbers, each at the nearest free place around its point."""
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
