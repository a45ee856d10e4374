"""Lower bounds of epsilon from many runs, half of them with one additional record.

A threshold separates the scores of H0 (without the record) from those of H1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.privacy.estimate import Errors, epsilon_of_errors, require_share
from leakgauge.privacy.profile import Profile
from leakgauge.results.statistics import Floats, Ints, clopper_pearson_upper

Objective = Callable[[Floats, Floats], Floats]
"""(FPR, FNR), each ``[...]`` -> values ``[...]`` that a threshold maximises."""


def epsilon_objective(delta: float) -> Objective:
    """Return the objective with its maximum at the largest epsilon that two error rates show."""
    return np.vectorize(lambda fpr, fnr: epsilon_of_errors(fpr, fnr, delta), otypes=[float])


def fewest_errors(fpr: Floats, fnr: Floats) -> Floats:
    """Return the objective with its maximum at the fewest errors, which estimates mu best.

    Every threshold shows the same mu, and one in the middle has the narrowest interval. The
    largest bound of mu itself would lie far out, where a few errors decide by chance.
    """
    return -(fpr + fnr)


def choose_threshold(
    null: Floats, alternative: Floats, objective: Objective, *, confidence: float = 0.95
) -> float:
    """Return the threshold with the largest lower bound; a score above it counts as H1.

    Args:
        null: scores under H0 ``[n]`` of trials that are not evaluated afterwards.
        alternative: scores under H1 ``[m]``.
        objective: function of the upper ends of the error rates.
        confidence: two-sided confidence of the Clopper-Pearson intervals of the error rates.

    Returns:
        A value halfway between two neighbouring scores; the middle one of equally good values.

    >>> choose_threshold(np.arange(9.0), np.arange(20.0, 29.0), fewest_errors)
    14.0
    """

    return _middle_best(*_limits(null, alternative, objective, confidence))


def are_reversed(
    null: Floats, alternative: Floats, delta: float, *, confidence: float = 0.95
) -> bool:
    """Return whether scores show a larger epsilon if smaller ones, not larger ones, suggest H1.

    A test of either direction bounds epsilon, so the trials that choose the threshold choose the
    direction, too. Scores that show nothing in either direction are not reversed.

    Args:
        null: scores under H0 ``[n]`` of trials that are not evaluated afterwards.
        alternative: scores under H1 ``[m]``.
        delta: in [0, 1).
        confidence: two-sided confidence of the Clopper-Pearson intervals of the error rates.

    >>> low, high = np.arange(20.0), np.arange(30.0, 50.0)
    >>> are_reversed(low, high, 0.0), are_reversed(high, low, 0.0), are_reversed(low, low, 0.0)
    (False, True, False)
    """
    as_given, turned = (
        _limits(sign * null, sign * alternative, epsilon_objective(delta), confidence)[1].max()
        for sign in (1, -1)
    )
    return bool(turned > as_given)


def _limits(
    null: Floats, alternative: Floats, objective: Objective, confidence: float
) -> tuple[Floats, Floats]:
    """Return each threshold, and the objective of the upper ends of its error rates."""

    def limits(scores: Floats) -> Floats:
        return clopper_pearson_upper(np.arange(len(scores) + 1), len(scores), confidence)

    cuts, false_positives, false_negatives = _cuts(null, alternative)
    return cuts, objective(limits(null)[false_positives], limits(alternative)[false_negatives])


def errors_at(null: Floats, alternative: Floats, threshold: float) -> Errors:
    """Return the numbers of scores on the wrong side of a threshold.

    >>> errors_at(np.array([0.0, 2.0]), np.array([1.0, 3.0, 4.0]), 1.5)
    Errors(false_positives=1, false_negatives=1, negatives=2, positives=3)
    """
    wrong = int((null > threshold).sum()), int((alternative <= threshold).sum())
    return Errors(*wrong, len(null), len(alternative))


def threshold_in_sample(null: Floats, alternative: Floats, delta: float) -> float:
    """Return the paper's threshold: the one with the largest estimate on the evaluated trials.

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
    return _middle_best(cuts, epsilons)


def _middle_best(cuts: Floats, values: Floats) -> float:
    best = np.flatnonzero(values == values.max())
    return float(cuts[best[len(best) // 2]])


def _cuts(null: Floats, alternative: Floats) -> tuple[Floats, Ints, Ints]:
    """Return each threshold that splits the scores differently, and its errors under H0 and H1."""
    values = np.unique(np.concatenate([null, alternative]))
    cuts = np.concatenate([[values[0] - 1], values[:-1] + np.diff(values) / 2])
    wrong_null = len(null) - np.searchsorted(np.sort(null), cuts, side="right")
    wrong_alternative = np.searchsorted(np.sort(alternative), cuts, side="right")
    return cuts, wrong_null, wrong_alternative


ScoredRun = Callable[[bool, int], float]
"""(whether the record is in, seed) -> the score of a run; larger scores suggest that it is in."""


@dataclass(frozen=True)
class ManyErrors:
    """Errors of three tests on the same runs, each with a threshold chosen on other runs.

    Attributes:
        claim: errors at the threshold that contradicts the claim most.
        epsilon: errors at the threshold with the largest epsilon.
        gaussian: errors at the threshold with the fewest errors, which estimates mu best.
        turned: whether smaller scores, not larger ones, suggest that the record is in.
    """

    claim: Errors
    epsilon: Errors
    gaussian: Errors
    turned: bool = False


def scores_of(run: ScoredRun, runs: int, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return the scores of runs without the record ``[runs / 2]`` and with it ``[runs / 2]``.

    Args:
        run: executes one run.
        runs: even number of runs, 8 or more; sides alternate, so that a drift affects both.
        seed: seed from which each run derives its seed.
    """
    require(runs >= 8 and runs % 2 == 0, f"runs is {runs}; expected an even number of 8 or more")
    scores = np.array([float(run(bool(n % 2), derive(seed, "run", n))) for n in range(runs)])
    require(bool(np.isfinite(scores).all()), "a run's score is not finite; its training diverged")
    return scores[0::2], scores[1::2]


def errors_of(out: Floats, inside: Floats, claim: Profile, *, confidence: float) -> ManyErrors:
    """Return the errors of tests of out against in.

    The first half of each side chooses the thresholds and the direction of the scores, the second
    half is evaluated.

    Args:
        out: scores of runs without the record ``[n]``.
        inside: scores of runs with it ``[k]``.
        claim: claim of the accountant.
        confidence: two-sided confidence of the Clopper-Pearson intervals of the error rates.
    """
    require(
        min(len(out), len(inside)) >= 4,
        f"{len(out)} runs without the record, {len(inside)} with it; expected 4 or more of each",
    )
    half = len(out) // 2, len(inside) // 2
    turned = are_reversed(out[: half[0]], inside[: half[1]], claim.delta, confidence=confidence)
    if turned:
        out, inside = -out, -inside
    chosen = out[: half[0]], inside[: half[1]]
    evaluated = out[half[0] :], inside[half[1] :]

    def errors(objective: Objective) -> Errors:
        threshold = choose_threshold(*chosen, objective, confidence=confidence)
        return errors_at(*evaluated, threshold)

    return ManyErrors(
        errors(claim_objective(claim)),
        errors(epsilon_objective(claim.delta)),
        errors(fewest_errors),
        turned,
    )


def claim_objective(claim: Profile) -> Objective:
    """Return the log of the ratio of the FPR that a claim allows to the measured FPR."""

    def excess(fpr: Floats, fnr: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            one = np.log(claim.least_false_positives(1 - fnr)) - np.log(fpr)
            other = np.log(claim.least_false_positives(1 - fpr)) - np.log(fnr)
        larger: Floats = np.maximum(one, other)
        return larger

    return excess
