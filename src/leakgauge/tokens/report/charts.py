"""Charts of a training: bound, placebo and accuracy; matched and mismatched scores."""

from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.tokens.metrics import INFORMATION, MATCHED, MISMATCHED, PLACEBO
from leakgauge.tokens.report.rows import InformationCurve, Steps

DASHED, DOTTED = (0, (5, 2)), (0, (1, 1.5))
_DEEPEST = -3.0
"""Lower limit of a chart of bounds in nats, as some bounds diverge."""


def bound_chart(
    curve: InformationCurve,
    model: Steps,
    cheap: Steps,
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
        places, placebo = _drawn(curve.figures.get(PLACEBO, {}), steps)
        low, high = [max(one.low, _DEEPEST) for one in placebo], [one.high for one in placebo]
        axes.fill_between(places, low, high, color=MUTED, alpha=0.3, linewidth=0)
        _line(axes, cheap, steps, colour=INK, dash=DASHED)
        _line(axes, curve.figures.get(INFORMATION, {}), steps, colour=ACCENT, dash="-")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], _DEEPEST))
        _axis(axes, steps)
        if model:
            _accuracy(axes, [(steps.index(step), one) for step, one in model.items()])
    return svg[0]


def scores_chart(curve: InformationCurve, steps: Sequence[int], *, name: str) -> Markup:
    """Return the mean scores of matched and of mismatched pairs (appendix B of the paper).

    Args:
        curve: curve of one critic.
        steps: checkpoints along the axis.
        name: unique name of the chart on the page.
    """
    with chart(name) as (axes, svg):
        _line(axes, curve.figures.get(MATCHED, {}), steps, colour=ACCENT, dash="-")
        _line(axes, curve.figures.get(MISMATCHED, {}), steps, colour=INK, dash=DASHED)
        _axis(axes, steps)
    return svg[0]


def _drawn(found: Steps, steps: Sequence[int]) -> tuple[list[int], list[Estimate]]:
    """Return the places on the axis and the figures of the checkpoints that have one."""
    known = [step for step in steps if step in found]
    return [steps.index(step) for step in known], [found[step].estimate for step in known]


def _line(axes: Axes, found: Steps, steps: Sequence[int], *, colour: str, dash: object) -> None:
    places, estimates = _drawn(found, steps)
    values = [max(one.value, _FAR_BELOW) for one in estimates]
    pairs = list(zip(values, estimates, strict=True))
    below = [max(0.0, value - max(one.low, _FAR_BELOW)) for value, one in pairs]
    above = [max(0.0, min(one.high, -_FAR_BELOW) - value) for value, one in pairs]
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
    if all(0 <= one.estimate.value <= 1 for _, one in known):
        right.set_ylim(0, 1)
        right.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f} %"))
