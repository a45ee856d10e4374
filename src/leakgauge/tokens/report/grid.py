"""Heat maps over batch sizes and checkpoints for the page of a grid (appendix C of the paper)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from leakgauge.report.charts import ACCENT, INK, chart
from leakgauge.report.compare import Comparison, Group, along_axis
from leakgauge.report.section import Chart
from leakgauge.report.wording import number, percent
from leakgauge.results.measurements import Measurement
from leakgauge.results.metrics import over_seeds
from leakgauge.tokens.metrics import GAP, INFORMATION, METRICS, MODEL
from leakgauge.tokens.words import QUESTION

AXIS = "batch_size"


@dataclass(frozen=True)
class Square:
    """One cell of a heat map.

    Attributes:
        value: mean of the metric over seeds.
        accuracy: accuracy of the model; None without one.
    """

    value: float
    accuracy: float | None


Map = Mapping[tuple[int, int], Square]
"""Cells by batch size and sub-epoch."""


def charts(comparison: Comparison, groups: Sequence[Group]) -> list[Chart]:
    """Return heat maps of critic gap and bound for each critic; none for a single batch size.

    Args:
        comparison: the finished cells.
        groups: the cells by their settings, over seeds.
    """
    made: list[Chart] = []
    for title, along in along_axis(groups, AXIS).items():
        for metric in _measured(comparison, along):
            squares = _squares(comparison, along, metric)
            name = f"{QUESTION}-heat-{len(made)}"
            label = METRICS[metric].label
            made.append(
                Chart(
                    caption=f"{label}{f': {title}' if title else ''}",
                    says=_in_words(label, squares),
                    svg=draw(squares, name=name),
                    note=_note(squares, first=not made),
                )
            )
    return made


def _note(squares: Map, *, first: bool) -> str:
    """Return a note on the colours; the first chart's note also explains the text."""
    values = [one.value for one in squares.values()]
    colours = f"The palest cell has {number(min(values))}, the strongest {number(max(values))}."
    return f"{colours} The text is the accuracy on test records." if first else colours


def draw(squares: Map, *, name: str) -> Markup:
    """Return the heat map as inline SVG.

    Args:
        squares: cells of the map.
        name: unique name of the chart on the page.
    """
    sizes, steps = (sorted(set(ticks)) for ticks in zip(*squares, strict=True))
    values = [one.value for one in squares.values()]
    low, span = min(values), max(max(values) - min(values), 1e-12)
    with chart(name) as (axes, svg):
        for (size, step), one in squares.items():
            x, y = steps.index(step), sizes.index(size)
            shade = 0.08 + 0.62 * (one.value - low) / span
            axes.fill_between(
                [x - 0.48, x + 0.48], y - 0.46, y + 0.46, color=ACCENT, alpha=shade, lw=0
            )
            share = one.accuracy
            if share is not None:
                text = f"{100 * share:.0f} %" if 0 <= share <= 1 else f"{share:.2f}"
                axes.text(x, y, text, ha="center", va="center", color=INK)
        axes.set_xticks(range(len(steps)), [str(step) for step in steps])
        axes.set_yticks(range(len(sizes)), [str(size) for size in sizes])
        axes.set_xlim(-0.5, len(steps) - 0.5)
        axes.set_ylim(-0.5, len(sizes) - 0.5)
        axes.grid(visible=False)
        axes.set_xlabel("sub-epoch; upwards: batch size")
    return svg[0]


def _in_words(label: str, squares: Map) -> str:
    (size, step), top = max(squares.items(), key=lambda pair: pair[1].value)
    accuracy = "" if top.accuracy is None else f", where the accuracy is {percent(top.accuracy)}"
    return (
        f"{label} is largest, {number(top.value)}, with batches of {size} at sub-epoch "
        f"{step}{accuracy}."
    )


def _measured(comparison: Comparison, along: Sequence[Group]) -> list[str]:
    """Return the measured gaps and bounds, in the order of the question's metrics."""
    names = {one.metric for group in along for one in _of(comparison, group)}
    starts = (f"{GAP}: ", f"{INFORMATION}: ")
    return [name for name in METRICS if name in names and name.startswith(starts)]


def _squares(comparison: Comparison, along: Sequence[Group], metric: str) -> Map:
    found: dict[tuple[int, int], Square] = {}
    for group in along:
        measured = _of(comparison, group)
        for step in sorted({one.round for one in measured if isinstance(one.round, int)}):
            here = [one for one in measured if one.round == step]
            model = [one for one in here if one.metric.partition(": ")[0] == MODEL]
            own = [one for one in here if one.metric == metric]
            if own:
                accuracy = over_seeds(model, METRICS[model[0].metric]).value if model else None
                value = over_seeds(own, METRICS[metric]).value
                found[int(group.settings[AXIS]), step] = Square(value, accuracy)
    return found


def _of(comparison: Comparison, group: Group) -> list[Measurement]:
    cells = [comparison.cells[key] for key in group.keys if key in comparison.cells]
    return [one for cell in cells for one in cell.measurements]
