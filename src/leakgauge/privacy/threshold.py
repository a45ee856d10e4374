"""Thresholds between the scores of H0 and those of H1, and their errors."""

from collections.abc import Callable

import numpy as np

from leakgauge.privacy.estimate import Errors, epsilon_of_errors, require_share
from leakgauge.results.statistics import Floats, Ints, clopper_pearson_upper

Objective = Callable[[Floats, Floats], Floats]
"""(FPR, FNR), each ``[...]`` -> the values ``[...]`` of which a threshold takes the largest."""


def epsilon_objective(delta: float) -> Objective:
    """Return the objective of the largest epsilon that two error rates show."""
    return np.vectorize(lambda fpr, fnr: epsilon_of_errors(fpr, fnr, delta), otypes=[float])


def fewest_errors(fpr: Floats, fnr: Floats) -> Floats:
    """Return the objective of the fewest errors, which estimates mu best.

    Every threshold shows the same mu, and one in the middle has the narrowest interval. The
    largest bound of mu itself would lie far out, where a few errors decide by chance.
    """
    return -(fpr + fnr)


def choose_threshold(
    null: Floats, alternative: Floats, objective: Objective, *, confidence: float = 0.95
) -> float:
    """Return the threshold with the largest lower bound; a score above it counts as H1.

    Args:
        null: scores under H0 ``[n]``, of trials that are not judged afterwards.
        alternative: scores under H1 ``[m]``.
        objective: takes the upper ends of the error rates.
        confidence: of the Clopper-Pearson intervals of the error rates.

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
    values = objective(fpr, fnr)
    best = np.flatnonzero(values == values.max())
    return float(cuts[best[len(best) // 2]])


def errors_at(null: Floats, alternative: Floats, threshold: float) -> Errors:
    """Return how many scores lie on the wrong side of a threshold.

    >>> errors_at(np.array([0.0, 2.0]), np.array([1.0, 3.0, 4.0]), 1.5)
    Errors(false_positives=1, false_negatives=1, negatives=2, positives=3)
    """
    wrong = int((null > threshold).sum()), int((alternative <= threshold).sum())
    return Errors(*wrong, len(null), len(alternative))


def threshold_in_sample(null: Floats, alternative: Floats, delta: float) -> float:
    """Return the paper's threshold: the largest point estimate on the trials that it judges.

    The estimate at this threshold is biased upward, since the threshold fits the noise of these
    trials: it stays above 0 where nothing leaks. An error that never happened counts as one.

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
    epsilons = np.array([epsilon_of_errors(fpr, fnr, delta, least=least) for fpr, fnr in errors])
    best = np.flatnonzero(epsilons == epsilons.max())
    return float(cuts[best[len(best) // 2]])


def _cuts(null: Floats, alternative: Floats) -> tuple[Floats, Ints, Ints]:
    """Every threshold that splits the scores in a new way, and its errors under H0 and H1."""
    values = np.unique(np.concatenate([null, alternative]))
    cuts = np.concatenate([[values[0] - 1], values[:-1] + np.diff(values) / 2])
    wrong_null = len(null) - np.searchsorted(np.sort(null), cuts, side="right")
    wrong_alternative = np.searchsorted(np.sort(alternative), cuts, side="right")
    return cuts, wrong_null, wrong_alternative
