"""Charts of a test: a metric by round, and the ROC."""

import math
from collections.abc import Sequence

from markupsafe import Markup
from matplotlib.axes import Axes

from leakgauge.inference.report.headline import covers_all_rounds
from leakgauge.report.charts import ACCENT, INK, MUTED, chart
from leakgauge.report.charts import roc as draw_roc
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import Measurement

_MARKERS = 40  # single rounds up to which each has its own dot


def over_rounds(test: Test, metric: str, *, floor: float, name: str) -> Markup | None:
    """Return a metric in each round with its interval, chance, and all rounds together beside it.

    A second line is the plain sum of the rounds so far.

    Args:
        test: the test.
        metric: one of its metrics.
        floor: lower end of the axis; one for all tests, so that charts can be compared.
        name: a word that no other chart of the page has.
    """
    single = test.single(metric)
    whole = _of_all_rounds(test, metric)
    if not single:
        return None
    with chart(name) as (axes, svg):
        rounds = [int(one.round) for one in single]
        _draw_rounds(axes, rounds, single)
        _draw_sums(axes, test.added_up(metric))
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


def _of_all_rounds(test: Test, metric: str) -> Measurement | None:
    """The figure of all rounds together; None where the chosen one is a single round's."""
    whole = test.whole(metric)
    return whole if whole is not None and covers_all_rounds(whole) else None


def roc(test: Test, *, name: str) -> Markup | None:
    """Return the ROC of all rounds together, the false positive rate on a log axis."""
    one = test.whole("auroc")
    if one is None or not one.curve:
        return None
    return draw_roc(one.curve, name=name)


def common_floor(tests: Sequence[Test], metric: str) -> float:
    """Return a lower end for the axis that holds every interval and chance, on a round number."""
    drawn = [one for test in tests for one in (*test.single(metric), test.whole(metric))]
    values = [min(one.estimate.low, one.chance) for one in drawn if one is not None]
    return math.floor(10 * (min(values, default=0.5) - 0.02)) / 10


def _draw_rounds(axes: Axes, rounds: Sequence[int], single: Sequence[Measurement]) -> None:
    estimates = [one.estimate for one in single]
    low, high = [e.low for e in estimates], [e.high for e in estimates]
    values = [e.value for e in estimates]
    if len(rounds) == 1:
        axes.plot([rounds[0]] * 2, [low[0], high[0]], color=ACCENT, linewidth=8, alpha=0.25)
    else:
        axes.fill_between(rounds, low, high, color=ACCENT, alpha=0.18, linewidth=0)
    marker = "o" if len(rounds) <= _MARKERS else ""
    axes.plot(rounds, values, color=ACCENT, linewidth=2, marker=marker, markersize=4.5)


def _draw_sums(axes: Axes, sums: Sequence[tuple[int, Measurement]]) -> None:
    counts, values = [count for count, _ in sums], [one.estimate.value for _, one in sums]
    axes.plot(counts, values, color=INK, linewidth=1.4, marker="s", markersize=3.5, alpha=0.8)


def _draw_whole(axes: Axes, x: float, one: Measurement) -> None:
    estimate = one.estimate
    axes.axhline(estimate.value, color=INK, linewidth=0.8, alpha=0.45)
    axes.plot([x, x], [estimate.low, estimate.high], color=INK, linewidth=1.6)
    axes.plot([x], [estimate.value], color=INK, marker="D", markersize=6, linestyle="")


def _draw_chance(axes: Axes, chance: float) -> None:
    axes.axhline(chance, color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)))


def _ticks(rounds: Sequence[int]) -> dict[float, str]:
    step = math.ceil(len(rounds) / 8)
    return {float(when): str(when) for when in rounds[::step]}
