"""Area under the ROC and true positive rate at a false positive rate, of weighted trials.

Weights ``[..., n]`` of the trials give one value for each leading index.
"""

import numpy as np
from numpy.typing import NDArray

from leakgauge.results.statistics import Floats, Ints


def _tie_ends(sorted_score: Floats) -> Ints:
    """Return the last position of each run of equal scores."""
    return np.flatnonzero(np.append(np.diff(sorted_score) != 0, True))


def cumulative(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
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


def auroc(
    positive: NDArray[np.bool_], score: Floats, weights: Floats | None = None
) -> NDArray[np.float64]:
    """Return the area under the ROC: P(score of a positive > of a negative), ties count half.

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
    """Return the largest true positive rate at a false positive rate of at most ``fpr``.

    It does not interpolate between thresholds: trials of equal score are accepted together. The
    result is nan where a class has no weight.

    >>> label = np.repeat([False, True], 100)
    >>> score = np.concatenate([np.arange(100), np.arange(100) + 9.5])
    >>> float(tpr_at_fpr(label, score, 0.01))
    0.11
    """
    return best_rate(*cumulative(positive, score, weights), fpr)
