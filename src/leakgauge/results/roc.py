"""ROC figures of scores: area, true positive rate at a false positive rate.

Weights ``[..., n]`` of the trials give one value for each leading index.
"""

import numpy as np
from numpy.typing import NDArray

from leakgauge.results.statistics import Floats, Ints


def _tie_ends(sorted_score: Floats) -> Ints:
    """The last position of each run of equal scores."""
    return np.flatnonzero(np.append(np.diff(sorted_score) != 0, True))


def cumulative(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Weights of the negatives and of the positives at or above each distinct score, from 0 on.

    Both have shape ``[..., g + 1]`` for g distinct scores, highest score first. Not yet divided
    by their sums: whole numbers add up exactly, and a perfect area is then exactly 1.
    """
    weights = np.ones(len(score)) if weights is None else weights
    order = np.argsort(-score, kind="stable")
    ends = _tie_ends(score[order])
    sorted_weights = weights[..., order]
    masses = []
    for member in (~positive[order], positive[order]):
        mass = np.cumsum(sorted_weights * member, axis=-1)[..., ends]
        masses.append(np.concatenate([np.zeros((*mass.shape[:-1], 1)), mass], axis=-1))
    return masses[0], masses[1]


def area(negatives: Floats, positives: Floats) -> Floats:
    """Area under the ROC ``[...]`` of weights that ``cumulative`` summed."""
    won = np.sum(np.diff(negatives) * (positives[..., 1:] + positives[..., :-1]) / 2, axis=-1)
    with np.errstate(invalid="ignore"):
        share: Floats = won / (negatives[..., -1] * positives[..., -1])
    return share


def best_rate(negatives: Floats, positives: Floats, limit: float) -> Floats:
    """Largest true positive rate ``[...]`` at a false positive rate of at most ``limit``."""
    accepted = negatives <= limit * negatives[..., -1:] + 1e-9
    most = np.max(np.where(accepted, positives, 0.0), axis=-1)
    with np.errstate(invalid="ignore"):
        best: Floats = most / positives[..., -1]
    return np.where(negatives[..., -1] > 0, best, np.nan)


def auroc(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Area under the ROC: P(score of a positive > score of a negative), ties count half.

    Args:
        positive: ``[n]``, which trials are positive.
        score: ``[n]``, higher for positives.
        weights: ``[..., n]`` or None for all ones.

    Returns:
        ``[...]``; nan where a class has no weight.

    >>> negatives, positives = np.arange(100), np.arange(100) + 9.5
    >>> label = np.repeat([False, True], 100)
    >>> round(float(auroc(label, np.concatenate([negatives, positives]))), 6)
    0.5905
    """
    return area(*cumulative(positive, score, weights))


def tpr_at_fpr(
    positive: NDArray[np.bool_], score: Floats, fpr: float, weights: Floats | None = None
) -> NDArray[np.float64]:
    """The largest true positive rate of a threshold whose false positive rate is at most ``fpr``.

    No interpolation between thresholds: trials of equal score are accepted together. nan where a
    class has no weight.

    >>> label = np.repeat([False, True], 100)
    >>> score = np.concatenate([np.arange(100), np.arange(100) + 9.5])
    >>> float(tpr_at_fpr(label, score, 0.01))
    0.11
    """
    return best_rate(*cumulative(positive, score, weights), fpr)
