"""Intervals that hold with few errors: of a rate, of an AUROC and of a TPR at a small FPR.

Resamples hold no error that the trials do not hold. So with few errors, as near an AUROC of 1 or
at a false positive rate of 0.001, the bootstrap alone is too sure. These intervals count errors
exactly or by the variance that a candidate value would have. Trials of a block, or trials that
share records, depend on each other: they count as fewer independent ones (``independent``).

References:
    Korn and Graubard, Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data, Survey Methodology 1998.
    Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    part 2, Statistics in Medicine 2006, method 5.
"""

import math

import numpy as np
import scipy
from scipy import optimize, special

from leakgauge.results.overlap import Overlap
from leakgauge.results.roc import auroc_influence, shares_won
from leakgauge.results.statistics import Bools, Floats, Ints, student_t

NEGLIGIBLE = 1e-9
"""Probability of a number of false positives that is left out."""


def independent(values: Floats, block: Ints | Overlap, confidence: float = 0.95) -> float:
    """Return the number of independent trials that would show the mean of values as well.

    It is at most the number of trials, and the number of blocks if all values are equal, since
    these do not show how trials of a block depend on each other.

    Args:
        values: one value for each trial ``[n]``, for example 1 for an error.
        block: block of each trial ``[n]``, or the records that trials share.
        confidence: confidence of the interval, which is wider with few blocks.

    >>> independent(np.array([0.0, 0.0, 1.0, 1.0] * 50), np.arange(200) // 2) < 110
    True
    """
    if isinstance(block, Overlap):
        return block.independent(values, confidence)
    n = len(values)
    _, index = np.unique(block, return_inverse=True)
    sizes = np.bincount(index)
    blocks = len(sizes)
    if blocks < 2 or np.ptp(values) == 0:
        return float(blocks)
    away = values - values.mean()
    of_blocks = np.bincount(index, weights=away)
    spread = blocks / (blocks - 1) * float(of_blocks @ of_blocks)
    alone = n / (n - 1) * float(away @ away)
    few = (student_t(n - 1, confidence) / student_t(blocks - 1, confidence)) ** 2
    return n * min(1.0, few * alone / spread)


def rate_interval(
    values: Floats, block: Ints | Overlap, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a mean of shares, for trials in blocks.

    Args:
        values: one share for each trial ``[n]``: 1 for a success, 1/2 for one of two ties.
        block: block of each trial ``[n]``, or the records that trials share.
        confidence: two-sided.

    >>> low, high = rate_interval(np.ones(100), np.arange(100) // 2)
    >>> round(low, 4), high
    (0.9289, 1.0)
    """
    n, side = independent(values, block, confidence), (1 - confidence) / 2
    hits = n * float(values.mean())
    low = special.betaincinv(hits, n - hits + 1, side) if hits > 0 else 0.0
    high = special.betaincinv(hits + 1, n - hits, 1 - side) if hits < n else 1.0
    return float(low), float(high)


def auroc_interval(
    positive: Bools, score: Floats, block: Ints | Overlap, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the areas under the ROC that are consistent with the one seen.

    An area is consistent if the one seen is within ``z`` of the standard errors that it implies
    (Hanley and McNeil's, for exponential scores).

    Args:
        positive: whether each trial is positive ``[n]``.
        score: scores ``[n]``, higher for positives.
        block: block of each trial ``[n]``, or the records that trials share.
        confidence: two-sided.

    >>> low, high = auroc_interval(np.arange(40) > 19, np.arange(40.0), np.arange(40))
    >>> round(low, 3), high
    (0.899, 1.0)
    """
    wins, losses = shares_won(positive, score)
    value = float(wins.mean())
    if isinstance(block, Overlap):  # what a record adds to both kinds of trials cancels
        of_all = block.independent(auroc_influence(positive, score), confidence) / len(score)
        positives, negatives = of_all * len(wins), of_all * len(losses)
    else:
        positives = independent(wins, block[positive], confidence)
        negatives = independent(losses, block[~positive], confidence)
    z = float(special.ndtri((1 + confidence) / 2))
    more = max(0.0, (positives + negatives) / 2 - 1)

    def error(at: float) -> float:
        pairs = at * (1 - at) * (1 + more * ((1 - at) / (2 - at) + at / (1 + at)))
        return math.sqrt(max(0.0, pairs / (positives * negatives)))

    def end(side: float, far: float) -> float:
        def beyond(at: float) -> float:
            return side * (at - value) - z * error(at)

        near = value + side * 1e-12  # at an area of 1 the error is 0, but not below
        return value if value == far else float(optimize.brentq(beyond, near, far))

    return end(-1.0, 0.0), end(1.0, 1.0)


def tpr_interval(
    positive: Bools, score: Floats, block: Ints | Overlap, fpr: float, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the interval of the true positive rate at a false positive rate.

    The threshold is the score that a negative exceeds with the probability ``fpr``. It is unknown:
    the number J of negatives above it is binomial. For each J, the threshold is between two
    neighbouring negatives, and the positives above are binomial, too; the ends are quantiles of
    the mixture. If no negative may be above (few negatives), the low end is 0: then nothing in the
    data bounds the threshold from above. No shape of the scores is assumed.

    Args:
        positive: whether each trial is positive ``[n]``.
        score: scores ``[n]``, higher for positives.
        block: block of each trial ``[n]``, or the records that trials share.
        fpr: the false positive rate.
        confidence: two-sided.
    """
    negatives = np.sort(score[~positive])[::-1]
    positives = np.sort(score[positive])
    cut = negatives[min(int(fpr * len(negatives) + NEGLIGIBLE), len(negatives) - 1)]
    others = max(1, round(independent((score[~positive] >= cut) * 1.0, block[~positive])))
    members = independent((score[positive] > cut) * 1.0, block[positive], confidence)
    accepted = np.arange(
        scipy.stats.binom.ppf(NEGLIGIBLE, others, fpr),
        scipy.stats.binom.isf(NEGLIGIBLE, others, fpr) + 1,
    )
    weights = scipy.stats.binom.pmf(accepted, others, fpr)
    scale, count = len(negatives) / others, len(positives)

    def above(rank: Ints) -> Floats:
        """Return the independent positives above the negative of a rank; rank 0 is infinity."""
        at = negatives[np.clip(rank, 1, len(negatives)) - 1]
        found = (count - np.searchsorted(positives, at, side="right")) * members / count
        return np.where(rank < 1, 0.0, np.where(rank > len(negatives), members, found))

    fewest = above(np.floor(accepted * scale).astype(np.int64))
    most = above(np.ceil((accepted + 1) * scale).astype(np.int64))
    return _mixture(fewest, members - fewest + 1, weights, (1 - confidence) / 2), _mixture(
        most + 1, members - most, weights, (1 + confidence) / 2
    )


def _mixture(first: Floats, second: Floats, weights: Floats, share: float) -> float:
    """Return the quantile of a mixture of beta distributions; a parameter 0 is a point mass."""

    def below(at: float) -> float:
        inside = special.betainc(np.maximum(first, 1e-300), np.maximum(second, 1e-300), at)
        each = np.where(first <= 0, 1.0, np.where(second <= 0, 0.0, inside))
        return float(weights @ each) / float(weights.sum()) - share

    if below(0.0) >= 0:
        return 0.0
    return 1.0 if below(1.0) <= 0 else float(optimize.brentq(below, 0.0, 1.0, xtol=1e-9))
