"""The difference of the AUROC of two adversaries on the same trials, with its interval."""

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from leakgauge.core.checks import require
from leakgauge.results.intervals import bootstrap_interval, jackknife_interval
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import AUROC, ScoredTrials, figures, influences, resampled_figures
from leakgauge.results.statistics import Floats

BOUNDS = (-1.0, 1.0)


def auroc_difference(
    one: ScoredTrials,
    other: ScoredTrials,
    *,
    rng: Generator,
    replicates: int = 1000,
    confidence: float = 0.95,
) -> Estimate:
    """Return the AUROC of one adversary less that of another on the same trials.

    Both see the same batches, so much of their errors is common. Each resample (of blocks; or
    without a user, or without a record) gives both figures, and the interval is that of their
    difference. It is narrower than one from two intervals, if the adversaries agree.

    Args:
        one: trials with the posteriors of one adversary.
        other: the same trials with those of another.
        rng: draws the resamples.
        replicates: number of resamples of blocks.
        confidence: two-sided.

    Raises:
        InputError: the trials are not the same.

    >>> truth, block = np.arange(400) % 2, np.arange(400) // 2
    >>> right = np.log(np.where(np.eye(2)[truth] == 1, 0.9, 0.1))
    >>> unsure = np.full((400, 2), np.log(0.5))
    >>> both = ScoredTrials(truth, right, block), ScoredTrials(truth, unsure, block)
    >>> auroc_difference(*both, rng=np.random.default_rng(0)).value
    0.5
    """
    same = np.array_equal(one.truth, other.truth) and np.array_equal(one.block, other.block)
    require(same, "the two adversaries scored different trials; compare them on the same ones")
    value = figures(one)[AUROC] - figures(other)[AUROC]
    low, high = _ends(one, other, value, rng, replicates, confidence)
    return Estimate(value, low, high, len(one.truth), confidence)


def _ends(
    one: ScoredTrials,
    other: ScoredTrials,
    value: float,
    rng: Generator,
    replicates: int,
    confidence: float,
) -> tuple[float, float]:
    if one.users is not None:
        left = np.array([*_without_each_user(one, other)])
        return jackknife_interval(value, left, confidence=confidence, bounds=BOUNDS)
    if one.overlap is not None:
        added = influences(one)[AUROC] - influences(other)[AUROC]
        return one.overlap.interval(value, added, confidence, BOUNDS)
    index, drawn = one.resampled_blocks(replicates, rng)
    first, second = (
        resampled_figures(ScoredTrials(each.truth, each.log_posterior, index), drawn)[AUROC]
        for each in (one, other)
    )
    differences: Floats = first - second
    return bootstrap_interval(
        value, differences, blocks=drawn.shape[1], confidence=confidence, bounds=BOUNDS
    )


def _without_each_user(one: ScoredTrials, other: ScoredTrials) -> Iterator[float]:
    for kept in one.without_each_user():
        first, second = (
            figures(ScoredTrials(each.truth[kept], each.log_posterior[kept], each.block[kept]))
            for each in (one, other)
        )
        yield first[AUROC] - second[AUROC]
