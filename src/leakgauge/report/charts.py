"""Charts as inline SVG with the colours and the font of the page.

The charts contain no text of the user: names are in the HTML around them, which escapes them.
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

# Colours that stand for CSS variables until the SVG is written.
ACCENT, INK, MUTED, GRID = "#a10001", "#a10002", "#a10003", "#a10004"
_VARIABLES = {ACCENT: "--accent", INK: "--ink", MUTED: "--muted", GRID: "--grid"}

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "leakgauge",
    "path.simplify": False,
    "font.size": 12,
    **dict.fromkeys(("axes.edgecolor", "grid.color"), GRID),
    **dict.fromkeys(("axes.labelcolor", "xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size", "xtick.minor.size"), 0),
    "grid.linewidth": 0.8,
    "xtick.major.pad": 8,
}
_WIDTH, _HEIGHT = 5.0, 3.55  # inches; 72 units each, so a unit is about a pixel on the page


@contextmanager
def chart(
    name: str, size: tuple[float, float] = (_WIDTH, _HEIGHT)
) -> Iterator[tuple[Axes, list[Markup]]]:
    """Yield axes and a list that holds their SVG on exit; no global figure changes."""
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=size, dpi=72)
        axes = figure.add_axes((0.115, 0.19, 0.835, 0.785))
        svg: list[Markup] = []
        yield axes, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg.append(_inline(buffer.getvalue(), name, size))


def _inline(text: str, name: str, inches: tuple[float, float]) -> Markup:
    """Return SVG for HTML: without prologue, metadata or style, and with unique ids."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    body = text[text.index(">") + 1 :]
    size = f"{72 * inches[0]:g} {72 * inches[1]:g}"
    text = f'<svg viewBox="0 0 {size}" aria-hidden="true" focusable="false">{body}'
    text = text.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", text)
    text = re.sub(r"<g/>", "", text)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r"font-family: [^;]*; ", "", text)  # the page has the font
    text = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", text)
    # A hundredth of a pixel is enough in attributes; text between tags stays.
    text = re.sub(r'="[^"]*"', lambda match: re.sub(r"(\d\.\d\d)\d+", r"\1", match[0]), text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # This module draws all of it from numbers; it contains no text of the user.
    return Markup(re.sub(r"\s*\n\s*", "\n", text))


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
    """Return the power of ten at or below the smallest measured false positive rate."""
    smallest = min((fpr for fpr, _ in curve if fpr > 0), default=1e-2)
    return float(10.0 ** max(-4, min(-2, math.floor(math.log10(smallest) + 1e-9))))


def _from(left: float, curve: Curve) -> list[tuple[float, float]]:
    """Return the curve from ``left`` on, with its value there as the first point."""
    start = max((tpr for fpr, tpr in curve if fpr <= left), default=0.0)
    return [(left, start), *(point for point in curve if point[0] > left)]


def _thinned(points: Curve, left: float) -> list[tuple[float, float]]:
    """Return the points without those that look like the one before."""
    kept = [points[0]]
    for point in points[1:-1]:
        across = abs(math.log(point[0]) - math.log(kept[-1][0])) / -math.log(left)
        if max(across, abs(point[1] - kept[-1][1])) >= _STEP:
            kept.append(point)
    return [*kept, points[-1]] if len(points) > 1 else kept
