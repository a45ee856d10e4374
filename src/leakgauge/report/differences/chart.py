"""The chart of differences: one row and interval each, and the line of no difference."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.ticker import FuncFormatter, MaxNLocator

from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.differences.difference import UNSEEN, AuditDifference
from leakgauge.report.wording import change

_WIDTH, _ROW, _FRAME = 5.0, 0.42, 0.95
"""Width of the chart, height of a row, and height of the frame, in inches."""
_MOST = 2.0
"""Ends beyond this multiple of the largest value are cut off, to keep the others readable."""


def says(rows: Sequence[AuditDifference]) -> str:
    """Return the chart in words, for screen readers."""
    each = (f"{n}: {one.title}, {change(one.estimate)}" for n, one in enumerate(rows, start=1))
    return f"Differences of {rows[0].metric.label}, after minus before. " + "; ".join(each) + "."


def draw(rows: Sequence[AuditDifference], *, name: str) -> Markup:
    """Return differences of one metric as inline SVG, numbered from the top.

    Args:
        rows: differences of one metric, at least one.
        name: a word that no other chart of the page has.
    """
    height = _FRAME + _ROW * len(rows)
    left, right = _limits(rows)
    with chart(name, (_WIDTH, height)) as (axes, svg):
        axes.set_position((0.07, 0.62 / height, 0.9, _ROW * len(rows) / height))
        axes.axvline(0.0, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))
        for place, one in enumerate(rows):
            found = one.estimate
            colour = MUTED if one.verdict == UNSEEN or one.same else ACCENT
            ends = [max(found.low, left), min(found.high, right)]
            axes.plot(ends, [place, place], color=colour, linewidth=2.2, alpha=0.7)
            axes.plot([found.value], [place], color=colour, marker="o", markersize=7)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlim(left, right)
        axes.set_yticks(range(len(rows)), [str(n) for n in range(1, len(rows) + 1)])
        axes.tick_params(axis="y", colors=INK)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:+g}" if x else "0"))
        axes.set_xlabel("after minus before")
    return svg[0]


def _limits(rows: Sequence[AuditDifference]) -> tuple[float, float]:
    """Return the ends of the axis; intervals far beyond all values are cut off."""
    reach = max(abs(one.estimate.value) for one in rows) * _MOST
    ends = [end for one in rows for end in (one.estimate.low, one.estimate.high)]
    narrow = [max(abs(one.estimate.low), abs(one.estimate.high)) for one in rows]
    far = max(reach, min(narrow)) or 1.0
    low, high = max(min(ends), -far), min(max(ends), far)
    pad = 0.06 * (high - low) or 0.1
    return min(low - pad, -pad), max(high + pad, pad)
