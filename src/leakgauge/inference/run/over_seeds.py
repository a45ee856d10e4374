"""Means of figures over runs that differ only in their seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from leakgauge.inference.metrics import METRICS
from leakgauge.report.wording import number
from leakgauge.results.measurements import CHOSEN, HEADLINE, Estimate, Measurement, rounds_of
from leakgauge.results.metrics import metric_named, over_seeds, over_trials
from leakgauge.results.scores import AUROC, WORST_VALUE

BY_SEED = "by seed"
"""Name of the detail with the figure of each seed."""

BY_TRIALS = "interval of the trials"
"""Name of the detail with the interval for the trainings at hand, which says nothing of others."""


def combined(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return one measurement for each figure of several seeds, in the order of the first one.

    The headline adversary is the most frequent one over the seeds; shadow data decide in each.

    Args:
        measurements: figures of all seeds; those of a single seed are returned unchanged.
    """
    if len({one.seed for one in measurements}) < 2:
        return list(measurements)
    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for one in measurements:
        of_value = one.round == HEADLINE and (
            one.metric not in METRICS or one.metric == WORST_VALUE
        )
        if one.round != HEADLINE or of_value:
            adversary = "" if of_value else one.adversary
            groups.setdefault((*_test(one), adversary, one.metric, one.round), []).append(one)
    winners = _winners(measurements)
    means = [_mean(several) for several in groups.values()]
    return [each for one in means for each in _with_headline(one, winners)]


Winners = dict[tuple[str, str, str], str]
"""Maps (game, defense, knowledge) to the adversary of the headline."""


def _winners(measurements: Sequence[Measurement]) -> Winners:
    votes: dict[tuple[str, str, str], list[str]] = {}
    for one in measurements:
        if one.round == HEADLINE and one.metric == AUROC:
            votes.setdefault(_test(one), []).append(one.adversary)
    return {test: Counter(names).most_common(1)[0][0] for test, names in votes.items()}


def _with_headline(one: Measurement, winners: Winners) -> Iterator[Measurement]:
    """Yield a figure, and repeat it if it belongs to the headline."""
    winner = winners.get(_test(one))
    if one.round == HEADLINE:
        yield replace(one, adversary=winner or one.adversary)
        return
    yield one
    if one.round == CHOSEN and one.adversary == winner:
        yield replace(one, round=HEADLINE)


def _test(one: Measurement) -> tuple[str, str, str]:
    return one.game, one.defense, one.knowledge


def _mean(several: Sequence[Measurement]) -> Measurement:
    first = several[0]
    held_out = [one.held_out for one in several if one.held_out is not None]
    mean = over_seeds(several, metric_named(first.metric, METRICS))
    return replace(
        first,
        estimate=replace(mean, n=sum(one.estimate.n for one in several), unit=""),
        chance=float(np.mean([one.chance for one in several])),
        curve=_mean_curve(several),
        details={**_common(several), **_by_seed(several)},
        held_out=float(np.mean(held_out)) if held_out else None,
        seconds=sum(one.seconds for one in several),
    )


def _common(several: Sequence[Measurement]) -> dict[str, str]:
    """Return the most frequent text of each detail."""
    texts: dict[str, list[str]] = {}
    for one in several:
        for name, text in one.details.items():
            texts.setdefault(name, []).append(text)
    return {name: Counter(found).most_common(1)[0][0] for name, found in texts.items()}


def _by_seed(several: Sequence[Measurement]) -> dict[str, str]:
    """Return each seed's figure and the trials' interval; empty for rounds and first sums."""
    if isinstance(several[0].round, int) or rounds_of(several[0].round) is not None:
        return {}
    alone = over_trials([one.estimate for one in several])
    low, high = (min(1.0, max(0.0, end)) for end in (alone.low, alone.high))
    return {
        BY_SEED: ", ".join(f"{one.seed}: {number(one.estimate.value)}" for one in several),
        BY_TRIALS: f"{low:.6f} to {high:.6f}",
    }


def trials_interval(one: Measurement) -> Estimate | None:
    """Return a mean over seeds with the interval of its trials alone; None for a single seed."""
    if BY_TRIALS not in one.details:
        return None
    low, high = map(float, one.details[BY_TRIALS].split(" to "))
    return replace(one.estimate, low=low, high=high)


def _mean_curve(several: Sequence[Measurement]) -> tuple[tuple[float, float], ...] | None:
    """Return the mean of the ROCs, which share their false positive rates."""
    curves = [one.curve for one in several if one.curve is not None]
    return tuple((x, y) for x, y in np.mean(curves, axis=0).tolist()) if curves else None
