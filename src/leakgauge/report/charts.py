"""Charts as inline SVG with the colours and the font of the page.

The charts contain no text of the user: names are in the HTML around them, which escapes them.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from markupsafe import Markup
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    text = _with_used_ids(text)
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


def _with_used_ids(text: str) -> str:
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in used else "", text)
    return re.sub(r"<g/>", "", text)
