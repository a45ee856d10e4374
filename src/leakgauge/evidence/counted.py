"""The figures of a run that rules check, and the smallest leak that each can detect."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.levels import level_of
from leakgauge.results.measurements import ACCUMULATED, CHOSEN, HEADLINE, Estimate, Measurement
from leakgauge.results.metrics import NONE_SEEN, Metric
from leakgauge.results.scores import ADVANTAGE, AUROC, SUCCESS, advantage, smallest_detectable

OVER_ALL_ROUNDS = (CHOSEN, ACCUMULATED)
"""The readings of an adversary that is not the headline, the preferred one first."""


def counted(measurements: Sequence[Measurement], name: str, metric: Metric) -> list[Measurement]:
    """Return the headline figures of a metric, under every defense.

    For each game, secret and defense, take the adversary that knows the defense, if one was run,
    and the figure over all rounds of the adversary that shadow data favour, and of those that
    shadow data did not compare. Figures of adversaries that do not know the defense count, too,
    where they show more leakage than all of these. A metric without a figure over all rounds counts
    in each of them; one of the model counts in its last. The measurements are those of one
    question.
    """
    found = []
    for group in _groups(one for one in measurements if one.metric == name):
        aware = [one for one in group if one.knowledge == ADAPTIVE]
        leading = _leading(aware or group, of_model=metric.of_model)
        found += leading
        if aware and not metric.of_model:
            others = [one for one in group if one.knowledge != ADAPTIVE]
            found += [
                one for one in _leading(others, of_model=False) if _exceeds(one, leading, metric)
            ]
    return found


def _exceeds(one: Measurement, others: Sequence[Measurement], metric: Metric) -> bool:
    """Return whether a figure shows more leakage than each of the others."""
    sign = 1 if metric.higher_is_worse else -1
    return all(sign * one.estimate.value > sign * other.estimate.value for other in others)


def protected(
    figures: Sequence[Measurement], measurements: Sequence[Measurement]
) -> list[Measurement]:
    """Return the figures of the defended training; all figures if no defense was run.

    The undefended training of a run with a defense is only a yardstick. The figures are those of
    ``counted``, the measurements all of the question.
    """
    defended = {_test(one)[:2] for one in measurements if one.defense != UNDEFENDED}
    return [one for one in figures if one.defense != UNDEFENDED or _test(one)[:2] not in defended]


def smallest_visible(
    one: Measurement, metric: Metric, measurements: Sequence[Measurement]
) -> float | None:
    """Return the smallest leak that a test of this size sees with 80 % power.

    An advantage is never below 0, which cuts its interval; the success rate that it is computed
    from shows the size of the test. Another interval that ends at a bound of its metric is taken
    to be as wide on that side as on the other.

    Args:
        one: the figure.
        metric: its traits.
        measurements: all of the question, for the success rate behind an advantage.

    Returns:
        None if the figure does not measure a leak, its attack learned nothing, or its interval has
        no width.
    """
    if (
        is_blind(one, metric)
        or metric.of_model
        or one.chance == (metric.high if metric.higher_is_worse else metric.low)
    ):
        return None
    success = _other_metric(one, SUCCESS, measurements) if one.metric == ADVANTAGE else None
    if success is not None and success.chance < 1:
        if success.estimate.low == success.estimate.high:
            return None
        least = smallest_detectable(_whole(success.estimate, (0, 1)), success.chance)
        return advantage(least, success.chance)
    estimate = _whole(one.estimate, metric.bounds)
    seen = one.details.get(metric.planted)  # not NONE_SEEN, which is blind
    if estimate.low == estimate.high:
        return None if seen is None else float(seen)
    least = smallest_detectable(estimate, one.chance)
    if seen is not None:
        least = max(least, float(seen))
    return least if metric.higher_is_worse else 2 * one.chance - least


def is_blind(one: Measurement, metric: Metric) -> bool:
    """Return whether the attack behind a figure saw too little, or sees no planted leak."""
    if one.details.get(metric.planted) == NONE_SEEN:
        return True
    return any(each in one.details.items() for each in metric.blind)


def is_valid(one: Measurement, metric: Metric, measurements: Sequence[Measurement]) -> bool:
    """Return whether the test behind a figure counts: its AUROC is not below that of guessing."""
    if metric.of_model:
        return True
    auroc = one if one.metric == AUROC else _other_metric(one, AUROC, measurements)
    return auroc is None or level_of(auroc.estimate, auroc.chance) != "below"


def _whole(estimate: Estimate, bounds: tuple[float, float]) -> Estimate:
    """Return the interval without the cut of a bound."""
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    if estimate.low <= bounds[0]:
        below = max(below, above)
    if estimate.high >= bounds[1]:
        above = max(below, above)
    return replace(estimate, low=estimate.value - below, high=estimate.value + above)


def _test(one: Measurement) -> tuple[str, str, str]:
    return one.game, one.secret, one.defense


def _groups(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for one in measurements:
        groups.setdefault(_test(one), []).append(one)
    return list(groups.values())


def _leading(group: Sequence[Measurement], *, of_model: bool) -> list[Measurement]:
    rounds: dict[str, dict[int | str, Measurement]] = {}
    for one in group:
        rounds.setdefault(one.adversary, {})[one.round] = one
    headline = [each[HEADLINE] for each in rounds.values() if HEADLINE in each]
    compares = any(CHOSEN in each for each in rounds.values())
    if headline and not compares:
        return headline
    rest = [each for each in rounds.values() if not headline or not {HEADLINE, CHOSEN} & set(each)]
    return [*headline, *(one for each in rest for one in _over_rounds(each, of_model))]


def _over_rounds(each: dict[int | str, Measurement], of_model: bool) -> list[Measurement]:
    whole = [each[when] for when in OVER_ALL_ROUNDS if when in each]
    if whole:
        return whole[:1]
    single = [each[when] for when in sorted(when for when in each if isinstance(when, int))]
    return single[-1:] if of_model else single


def _other_metric(
    one: Measurement, metric: str, measurements: Sequence[Measurement]
) -> Measurement | None:
    """Return another figure of the same test."""
    same = (*_test(one), one.knowledge, one.adversary, one.round)
    return next(
        (
            other
            for other in measurements
            if other.metric == metric
            and (*_test(other), other.knowledge, other.adversary, other.round) == same
        ),
        None,
    )
