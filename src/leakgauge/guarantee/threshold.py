"""Where to part the scores of H0 from those of H1, and how often that is wrong."""

from collections.abc import Callable

import numpy as np

from leakgauge.guarantee.estimate import Errors, epsilon_of_errors, require_share
from leakgauge.results.statistics import Floats, Ints, clopper_pearson_upper

Objective = Callable[[Floats, Floats], Floats]
"""(FPR, FNR), each ``[...]`` -> what a threshold is chosen to make large."""


def epsilon_objective(delta: float) -> Objective:
    """Epsilon that two errors show."""
    return np.vectorize(lambda fpr, fnr: epsilon_of_errors(fpr, fnr, delta), otypes=[float])


def fewest_errors(fpr: Floats, fnr: Floats) -> Floats:
    """For mu: every threshold shows the same mu, one in the middle with the narrowest interval.

    The largest bound of mu itself would be found far out, by the chance of a few errors.
    """
    return -(fpr + fnr)


def choose_threshold(
    null: Floats, alternative: Floats, objective: Objective, *, confidence: float = 0.95
) -> float:
    """The threshold with the largest lower bound; a score above it counts as H1.

    Args:
        null: scores under H0 ``[n]``, on trials that are not judged.
        alternative: scores under H1 ``[m]``.
        objective: what to bound, of the errors' upper ends.
        confidence: of the errors' Clopper-Pearson intervals.

    Returns:
        Halfway between two neighbouring scores; of equally good ones, one in the middle.

    >>> choose_threshold(np.arange(9.0), np.arange(20.0, 29.0), fewest_errors)
    14.0
    """

    def limits(scores: Floats) -> Floats:
        return clopper_pearson_upper(np.arange(len(scores) + 1), len(scores), confidence)

    cuts, false_positives, false_negatives = _cuts(null, alternative)
    fpr = limits(null)[false_positives]
    fnr = limits(alternative)[false_negatives]
    found = objective(fpr, fnr)
    best = np.flatnonzero(found == found.max())
    return float(cuts[best[len(best) // 2]])


def errors_at(null: Floats, alternative: Floats, threshold: float) -> Errors:
    """How often scores are on the wrong side of a threshold.

    >>> errors_at(np.array([0.0, 2.0]), np.array([1.0, 3.0, 4.0]), 1.5)
    Errors(false_positives=1, false_negatives=1, negatives=2, positives=3)
    """
    wrong = int((null > threshold).sum()), int((alternative <= threshold).sum())
    return Errors(*wrong, len(null), len(alternative))


def threshold_in_sample(null: Floats, alternative: Floats, delta: float) -> float:
    """The paper's threshold: that of the largest point estimate, on the trials it is judged on.

    The estimate at it is biased upward, since the threshold profits from the chance of these
    trials: it stays above 0 where nothing leaks. An error that never happened counts as once.

    Args:
        null: scores under H0 ``[n]``.
        alternative: scores under H1 ``[m]``.
        delta: in [0, 1).

    References:
        Li et al., CCS 2024, section 7.

    >>> threshold_in_sample(np.arange(9.0), np.arange(20.0, 29.0), 0.0)
    14.0
    """
    require_share(delta)
    cuts, false_positives, false_negatives = _cuts(null, alternative)
    errors = zip(false_positives / len(null), false_negatives / len(alternative), strict=True)
    least = 1 / len(null), 1 / len(alternative)
    shown = np.array([epsilon_of_errors(fpr, fnr, delta, least=least) for fpr, fnr in errors])
    best = np.flatnonzero(shown == shown.max())
    return float(cuts[best[len(best) // 2]])


def _cuts(null: Floats, alternative: Floats) -> tuple[Floats, Ints, Ints]:
    """Every threshold that parts the scores in a new way, and the errors at it."""
    values = np.unique(np.concatenate([null, alternative]))
    cuts = np.concatenate([[values[0] - 1], values[:-1] + np.diff(values) / 2])
    wrong_null = len(null) - np.searchsorted(np.sort(null), cuts, side="right")
    wrong_alternative = np.searchsorted(np.sort(alternative), cuts, side="right")
    return cuts, wrong_null, wrong_alternative
