"""Charts as inline SVG that takes its colours and its font from the page.

The charts carry no text of the user's: names stand in the HTML around them, where they are escaped.
"""

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from leakgauge.inference.report.cells import Cell
from leakgauge.inference.report.defenses import ADAPTIVE, NONE, Panel, Point
from leakgauge.results.measurements import ACCUMULATED, Measurement

# Colours that stand for CSS variables until the SVG is written.
ACCENT, INK, MUTED, GRID = "#a10001", "#a10002", "#a10003", "#a10004"
_VARIABLES = {ACCENT: "--accent", INK: "--ink", MUTED: "--muted", GRID: "--grid"}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "leakgauge",
    "path.simplify": False,
    "font.size": 12,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "xtick.major.pad": 8,
}
_WIDTH, _HEIGHT = 5.0, 3.55  # inches; 72 units each, so a unit is about a pixel on the page
_WIDE = (6.6, 4.3)  # of the chart of defenses
_MARKERS = 40  # single rounds up to which each has its own dot
_MARK = (17.0, 11.0)  # the room of a number beside its point, in pixels
_ROC_STEP = 0.004  # of the axes' length: nearer points look like one


def over_rounds(cell: Cell, metric: str, *, floor: float, name: str) -> Markup | None:
    """A metric in each round with its interval, chance, and all rounds together beside it.

    Args:
        cell: the test.
        metric: one of its metrics.
        floor: lower end of the axis; one for all tests, so that charts can be compared.
        name: a word that no other chart of the page has.
    """
    single = cell.single(metric)
    whole = cell.at(metric, ACCUMULATED)
    if not single:
        return None
    with chart(name) as (axes, svg):
        rounds = [int(record.round) for record in single]
        _draw_rounds(axes, rounds, single)
        ticks = _ticks(rounds)
        if whole is not None:
            beside = rounds[-1] + max(1.0, 0.09 * (rounds[-1] - rounds[0]))
            _draw_whole(axes, beside, whole)
            ticks[beside] = "all"
        _draw_chance(axes, single[0].chance)
        axes.set_xticks(list(ticks), list(ticks.values()))
        pad = 0.05 * max(1.0, max(ticks) - min(ticks)) + 0.2
        axes.set_xlim(min(ticks) - pad, max(ticks) + pad)
        axes.set_ylim(floor, 1.02)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("round")
    return svg[0]


def roc(cell: Cell, *, name: str) -> Markup | None:
    """The ROC of all rounds together, the false positive rate on a log axis."""
    record = cell.whole("auroc")
    if record is None or not record.curve:
        return None
    left = _lowest_rate(record.curve)
    points = _thinned(_from(left, record.curve), left)
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


def tradeoff(panel: Panel, *, name: str) -> Markup | None:
    """AUROC against the model's accuracy, a numbered point for each defense and adversary.

    Args:
        panel: the defenses of one game.
        name: a word that no other chart of the page has.
    """
    points = panel.points
    if not points:
        return None
    with chart(name, _WIDE) as (axes, svg):
        axes.axhline(0.5, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for majority in panel.majorities:
            axes.axvline(majority, color=MUTED, linewidth=1.2, linestyle=(0, (1, 2)))
        for point in points:
            _draw_point(axes, point)
        across = [x for p in points for x in (p.accuracy.low, p.accuracy.high)]
        across += panel.majorities
        pad = max(0.01, 0.08 * (max(across) - min(across)))
        axes.set_xlim(min(across) - pad, max(across) + pad)
        axes.set_ylim(math.floor(10 * (min(0.5, *(p.auroc.low for p in points)) - 0.04)) / 10, 1.04)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axes.set_xlabel("test accuracy of the model")
        _draw_marks(axes, points)
    return svg[0]


def common_floor(cells: Sequence[Cell], metric: str) -> float:
    """A lower end for the axis that holds every interval and chance, on a round number."""
    drawn = [record for cell in cells for record in (*cell.single(metric), cell.whole(metric))]
    values = [min(r.estimate.low, r.chance) for r in drawn if r is not None]
    return math.floor(10 * (min(values, default=0.5) - 0.02)) / 10


def _draw_rounds(axes: Axes, rounds: Sequence[int], single: Sequence[Measurement]) -> None:
    estimates = [record.estimate for record in single]
    low, high = [e.low for e in estimates], [e.high for e in estimates]
    values = [e.value for e in estimates]
    if len(rounds) == 1:
        axes.plot([rounds[0]] * 2, [low[0], high[0]], color=ACCENT, linewidth=8, alpha=0.25)
    else:
        axes.fill_between(rounds, low, high, color=ACCENT, alpha=0.18, linewidth=0)
    marker = "o" if len(rounds) <= _MARKERS else ""
    axes.plot(rounds, values, color=ACCENT, linewidth=2, marker=marker, markersize=4.5)


def _draw_whole(axes: Axes, x: float, record: Measurement) -> None:
    estimate = record.estimate
    axes.axhline(estimate.value, color=INK, linewidth=0.8, alpha=0.45)
    axes.plot([x, x], [estimate.low, estimate.high], color=INK, linewidth=1.6)
    axes.plot([x], [estimate.value], color=INK, marker="D", markersize=6, linestyle="")


def _draw_chance(axes: Axes, chance: float) -> None:
    axes.axhline(chance, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))


def _draw_point(axes: Axes, point: Point) -> None:
    x, y = point.accuracy, point.auroc
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
    centres = [axes.transData.transform((p.accuracy.value, p.auroc.value)) for p in points]
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
            (point.accuracy.value, point.auroc.value),
            xytext=(right, up),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=10.5,
            color=INK,
            arrowprops=line if far else None,
        )


def _ticks(rounds: Sequence[int]) -> dict[float, str]:
    step = math.ceil(len(rounds) / 8)
    return {float(when): str(when) for when in rounds[::step]}


def _lowest_rate(curve: Sequence[tuple[float, float]]) -> float:
    """The power of ten at or below the smallest false positive rate that was seen."""
    smallest = min((fpr for fpr, _ in curve if fpr > 0), default=1e-2)
    return float(10.0 ** max(-4, min(-2, math.floor(math.log10(smallest) + 1e-9))))


def _from(left: float, curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The curve from ``left`` on; it starts there as high as it is there."""
    start = max((tpr for fpr, tpr in curve if fpr <= left), default=0.0)
    return [(left, start), *(point for point in curve if point[0] > left)]


def _thinned(points: Sequence[tuple[float, float]], left: float) -> list[tuple[float, float]]:
    """The points without those that nobody could tell from the one before."""
    kept = [points[0]]
    for point in points[1:-1]:
        across = abs(math.log(point[0]) - math.log(kept[-1][0])) / -math.log(left)
        if max(across, abs(point[1] - kept[-1][1])) >= _ROC_STEP:
            kept.append(point)
    return [*kept, points[-1]] if len(points) > 1 else kept


@contextmanager
def chart(
    name: str, size: tuple[float, float] = (_WIDTH, _HEIGHT)
) -> Iterator[tuple[Axes, list[Markup]]]:
    """Axes to draw on; on leaving, the list holds their SVG. No global figure is touched."""
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=size, dpi=72)
        axes = figure.add_axes((0.115, 0.19, 0.835, 0.785))
        svg: list[Markup] = []
        yield axes, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg.append(_inline(buffer.getvalue(), name, size))


def _inline(text: str, name: str, inches: tuple[float, float]) -> Markup:
    """SVG to stand in HTML: no prologue, metadata or style of its own, and ids of its own."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    body = text[text.index(">") + 1 :]
    size = f"{72 * inches[0]:g} {72 * inches[1]:g}"
    text = f'<svg viewBox="0 0 {size}" aria-hidden="true" focusable="false">{body}'
    text = text.replace("xlink:href", "href")
    text = _with_used_ids(text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r"font-family: [^;]*; ", "", text)  # the page has the font
    text = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", text)
    # A hundredth of a pixel is enough; what stands between tags is for readers.
    text = re.sub(r'="[^"]*"', lambda found: re.sub(r"(\d\.\d\d)\d+", r"\1", found[0]), text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # Every part of it was drawn here from numbers; nothing of the user's is in it.
    return Markup(re.sub(r"\s*\n\s*", "\n", text))


def _with_used_ids(text: str) -> str:
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", text)
    return re.sub(r"<g/>", "", text)
