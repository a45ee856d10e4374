"""Charts of a training: bound, placebo and accuracy; matched and mismatched scores."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.tokens.metrics import INFORMATION, MATCHED, MISMATCHED, PLACEBO
from leakgauge.tokens.report.rows import Curve

DASHED, DOTTED = (0, (5, 2)), (0, (1, 1.5))
_DEEPEST = -3.0
"""Lower limit of a chart of bounds in nats, as some bounds diverge."""


def bound_chart(
    curve: Curve,
    model: Mapping[int, Measurement],
    cheap: Mapping[int, Measurement],
    steps: Sequence[int],
    *,
    name: str,
) -> Markup:
    """Return the bound and its interval over checkpoints, with placebo and accuracy.

    Checkpoints are equally spaced; the accuracy has a separate axis on the right.

    Args:
        curve: curve of one critic.
        model: utility of the model, by sub-epoch.
        cheap: linear-Gaussian measure, by sub-epoch.
        steps: checkpoints along the axis.
        name: unique name of the chart on the page.
    """
    with chart(name) as (axes, svg):
        axes.set_position((0.125, 0.19, 0.755, 0.785))
        axes.axhline(0, color=MUTED, linewidth=1)
        places, placebo = _drawn(curve, PLACEBO, steps)
        axes.fill_between(
            places,
            [max(one.low, _DEEPEST) for one in placebo],
            [one.high for one in placebo],
            color=MUTED,
            alpha=0.3,
            linewidth=0,
        )
        known = [step for step in steps if step in cheap]
        _line(
            axes,
            [steps.index(step) for step in known],
            [cheap[step].estimate for step in known],
            colour=INK,
            dash=DASHED,
        )
        _line(axes, *_drawn(curve, INFORMATION, steps), colour=ACCENT, dash="-")
        low = axes.get_ylim()[0]
        axes.set_ylim(bottom=max(low, _DEEPEST))
        _axis(axes, steps)
        if model:
            _accuracy(axes, [(steps.index(step), one) for step, one in model.items()])
    return svg[0]


def scores_chart(curve: Curve, steps: Sequence[int], *, name: str) -> Markup:
    """Return the mean scores of matched and of mismatched pairs (appendix B of the paper).

    Args:
        curve: curve of one critic.
        steps: checkpoints along the axis.
        name: unique name of the chart on the page.
    """
    with chart(name) as (axes, svg):
        _line(axes, *_drawn(curve, MATCHED, steps), colour=ACCENT, dash="-")
        _line(axes, *_drawn(curve, MISMATCHED, steps), colour=INK, dash=DASHED)
        _axis(axes, steps)
    return svg[0]


def _drawn(curve: Curve, metric: str, steps: Sequence[int]) -> tuple[list[int], list[Estimate]]:
    found = curve.figures.get(metric, {})
    known = [step for step in steps if step in found]
    return [steps.index(step) for step in known], [found[step].estimate for step in known]


def _line(
    axes: Axes, places: Sequence[int], estimates: Sequence[Estimate], *, colour: str, dash: object
) -> None:
    values = [max(one.value, _FAR_BELOW) for one in estimates]
    below = [
        max(0.0, value - max(one.low, _FAR_BELOW))
        for value, one in zip(values, estimates, strict=True)
    ]
    above = [
        max(0.0, min(one.high, -_FAR_BELOW) - value)
        for value, one in zip(values, estimates, strict=True)
    ]
    axes.errorbar(
        places,
        values,
        yerr=[below, above],
        color=colour,
        linestyle=dash,
        marker="o",
        markersize=5,
        linewidth=2,
        elinewidth=1.2,
        capsize=3,
    )


_FAR_BELOW = -100.0
"""Lower limit of drawn scores and bounds."""


def _axis(axes: Axes, steps: Sequence[int]) -> None:
    axes.set_xticks(range(len(steps)), [str(step) for step in steps])
    axes.set_xlim(-0.4, len(steps) - 0.6)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("sub-epoch")


def _accuracy(axes: Axes, known: Sequence[tuple[int, Measurement]]) -> None:
    right = axes.twinx()
    right.set_position((0.125, 0.19, 0.755, 0.785))
    right.grid(visible=False)
    right.spines[:].set_visible(False)
    right.plot(
        [place for place, _ in known],
        [one.estimate.value for _, one in known],
        color=INK,
        linestyle=DOTTED,
        marker="s",
        markersize=4,
        linewidth=1.6,
    )
    shares = all(0 <= one.estimate.value <= 1 for _, one in known)
    if shares:
        right.set_ylim(0, 1)
        right.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
