"""Area under the ROC and true positive rate at a false positive rate, with weights or resamples.

Weights ``[..., n]`` of the trials give one value for each leading index.

A resample weights all trials of a block alike. So its figures need sums by block only, and a
thousand resamples cost little more than one. Sums of whole and half numbers are exact: the results
equal those with a weight for each trial, to the last digit.
"""

import numpy as np

from leakgauge.results.statistics import Bools, Floats, Ints


def _tie_ends(sorted_score: Floats) -> Ints:
    """Return the last position of each run of equal scores."""
    return np.flatnonzero(np.append(np.diff(sorted_score) != 0, True))


def cumulative(positive: Bools, score: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return the weights of negatives and of positives at or above each distinct score, from 0 on.

    Both have shape ``[..., g + 1]`` for g distinct scores, highest score first. They are not
    divided by their sums: whole numbers add up exactly, so a perfect area is exactly 1.
    """
    weights = np.ones(len(score)) if weights is None else weights
    order = np.argsort(-score, kind="stable")
    ends = _tie_ends(score[order])
    sorted_weights = weights[..., order]
    masses = []
    for in_class in (~positive[order], positive[order]):
        mass = np.cumsum(sorted_weights * in_class, axis=-1)[..., ends]
        masses.append(np.concatenate([np.zeros((*mass.shape[:-1], 1)), mass], axis=-1))
    return masses[0], masses[1]


def area(negatives: Floats, positives: Floats) -> Floats:
    """Return the area under the ROC ``[...]`` of weights that ``cumulative`` summed."""
    won = np.sum(np.diff(negatives) * (positives[..., 1:] + positives[..., :-1]) / 2, axis=-1)
    with np.errstate(invalid="ignore"):
        share: Floats = won / (negatives[..., -1] * positives[..., -1])
    return share


def best_rate(negatives: Floats, positives: Floats, limit: float) -> Floats:
    """Return the largest true positive rate ``[...]`` at a false positive rate up to ``limit``."""
    accepted = negatives <= limit * negatives[..., -1:] + 1e-9
    most = np.max(np.where(accepted, positives, 0.0), axis=-1)
    with np.errstate(invalid="ignore"):
        best: Floats = most / positives[..., -1]
    return np.where(negatives[..., -1] > 0, best, np.nan)


def auroc(positive: Bools, score: Floats, weights: Floats | None = None) -> Floats:
    """Return the area under the ROC: P(score of a positive > of a negative), ties count half.

    Args:
        positive: whether each trial is positive ``[n]``.
        score: scores ``[n]``, higher for positives.
        weights: ``[..., n]``; None for all ones.

    Returns:
        ``[...]``; NaN if a class has no weight.

    >>> negatives, positives = np.arange(100), np.arange(100) + 9.5
    >>> label = np.repeat([False, True], 100)
    >>> round(float(auroc(label, np.concatenate([negatives, positives]))), 6)
    0.5905
    """
    return area(*cumulative(positive, score, weights))


def tpr_at_fpr(positive: Bools, score: Floats, fpr: float, weights: Floats | None = None) -> Floats:
    """Return the largest true positive rate at a false positive rate of at most ``fpr``.

    It does not interpolate between thresholds: trials of equal score are accepted together. The
    result is NaN if a class has no weight.

    >>> label = np.repeat([False, True], 100)
    >>> score = np.concatenate([np.arange(100), np.arange(100) + 9.5])
    >>> float(tpr_at_fpr(label, score, 0.01))
    0.11
    """
    return best_rate(*cumulative(positive, score, weights), fpr)


def shares_won(positive: Bools, score: Floats) -> tuple[Floats, Floats]:
    """Return the share of negatives below each positive, and of positives below each negative.

    A tie counts half. The mean of the first is the area under the ROC.

    >>> wins, losses = shares_won(np.array([True, False, True]), np.array([0.0, 1.0, 2.0]))
    >>> wins.tolist(), losses.tolist()
    ([0.0, 1.0], [0.5])
    """
    of, others = score[positive], score[~positive]
    return _share_below(of, others), _share_below(others, of)


def auroc_influence(positive: Bools, score: Floats) -> Floats:
    """Return what each trial adds to the area under the ROC ``[n]``; the mean of all is 0.

    To first order, the area of some of the trials differs from that of all by the mean of theirs.

    References:
        DeLong, DeLong and Clarke-Pearson, Comparing the areas under two or more correlated receiver
        operating characteristic curves, Biometrics 1988.

    >>> auroc_influence(np.array([True, False, True]), np.array([0.0, 1.0, 2.0])).tolist()
    [-0.75, 0.0, 0.75]
    """
    wins, losses = shares_won(positive, score)
    added = np.empty(len(score))
    added[positive] = (wins - wins.mean()) * len(score) / len(wins)
    added[~positive] = (losses.mean() - losses) * len(score) / len(losses)
    return added


def _share_below(score: Floats, others: Floats) -> Floats:
    others = np.sort(others)
    sides = [np.searchsorted(others, score, side=side) for side in ("left", "right")]
    share: Floats = (sides[0] + sides[1]) / (2 * len(others))
    return share


CELLS = 4_000_000
"""Numbers held in memory at once."""


def resampled_auroc(positive: Bools, score: Floats, block: Ints, drawn: Floats) -> Floats:
    """Return the area under the ROC of each resample ``[r]``; ties count half.

    Args:
        positive: whether each trial is positive ``[n]``.
        score: scores ``[n]``, higher for positives.
        block: block of each trial ``[n]``, codes below k.
        drawn: how often each block is drawn ``[r, k]``.

    Returns:
        ``[r]``; NaN if a class has no weight.

    >>> positive = np.array([True, False, True, False])
    >>> score, block = np.array([2.0, 1.0, 0.0, 0.5]), np.array([0, 0, 1, 1])
    >>> resampled_auroc(positive, score, block, np.array([[1.0, 1.0], [2.0, 0.0]])).tolist()
    [0.5, 1.0]
    """
    count = drawn.shape[1]
    positives, negatives = _sizes(block[positive], count), _sizes(block[~positive], count)
    won = (drawn @ _won(positive, score, block, count) * drawn).sum(axis=1)
    with np.errstate(invalid="ignore"):
        share: Floats = won / ((drawn @ negatives) * (drawn @ positives))
    return share


def _won(positive: Bools, score: Floats, block: Ints, count: int) -> Floats:
    """Return how many pairs the positives of each block win against the negatives of each block.

    The shape is ``[k, k]``, positives by row; a tie counts half.
    """
    order = np.argsort(score[~positive], kind="stable")
    negative, of_block = score[~positive][order], block[~positive][order]
    by_block = np.argsort(block[positive], kind="stable")
    rows, starts = np.unique(block[positive][by_block], return_index=True)
    wins = score[positive][by_block]
    lower, upper = (np.searchsorted(negative, wins, side=side) for side in ("left", "right"))
    won = np.zeros((count, count))
    width = max(1, CELLS // (len(score) + 1))
    for first in range(0, count, width):
        blocks = np.arange(first, min(first + width, count))
        below = np.zeros((len(negative) + 1, len(blocks)))
        below[1:] = np.cumsum(of_block[:, None] == blocks, axis=0)
        pairs = (below[lower] + below[upper]) / 2
        won[np.ix_(rows, blocks)] = np.add.reduceat(pairs, starts, axis=0)
    return won


def _sizes(block: Ints, count: int) -> Floats:
    return np.bincount(block, minlength=count).astype(np.float64)
