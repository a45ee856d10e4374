"""Lower bounds of epsilon from many runs, half of them with one record more."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.privacy.estimate import Errors
from leakgauge.privacy.profile import Floats, Profile
from leakgauge.privacy.threshold import (
    Objective,
    choose_threshold,
    epsilon_objective,
    errors_at,
    fewest_errors,
)

Run = Callable[[bool, int], float]
"""(whether the record is in, seed) -> the score of a whole run; larger ones speak for in."""


@dataclass(frozen=True)
class ManyErrors:
    """Errors of three tests on the same runs, each with a threshold chosen on other runs.

    Attributes:
        claim: of the threshold that contradicts the claim most.
        epsilon: of the threshold with the largest epsilon.
        gaussian: of the threshold with the fewest errors, which shows mu best.
    """

    claim: Errors
    epsilon: Errors
    gaussian: Errors


def scores_of(run: Run, runs: int, *, seed: int = 0) -> tuple[Floats, Floats]:
    """Return the scores of runs without the record ``[runs / 2]`` and with it ``[runs / 2]``.

    Args:
        run: plays one.
        runs: number of runs, even, 8 or more. They take turns, so that a drift hits both sides.
        seed: each run gets one of its own.
    """
    require(runs >= 8 and runs % 2 == 0, f"runs is {runs}; expected an even number of 8 or more")
    scores = np.array([float(run(bool(n % 2), derive(seed, "run", n))) for n in range(runs)])
    require(bool(np.isfinite(scores).all()), "a run's score is not finite; its training diverged")
    return scores[0::2], scores[1::2]


def errors_of(out: Floats, inside: Floats, claim: Profile, *, confidence: float) -> ManyErrors:
    """Return the errors of tests of out against in.

    The first half of each side chooses the thresholds, the second half is judged.

    Args:
        out: scores of runs without the record ``[n]``.
        inside: with it ``[k]``.
        claim: of the accountant.
        confidence: of the Clopper-Pearson intervals of the error rates.
    """
    require(
        min(len(out), len(inside)) >= 4,
        f"{len(out)} runs without the record, {len(inside)} with it; expected 4 or more of each",
    )
    chosen = out[: len(out) // 2], inside[: len(inside) // 2]
    judged = out[len(out) // 2 :], inside[len(inside) // 2 :]

    def errors(objective: Objective) -> Errors:
        threshold = choose_threshold(*chosen, objective, confidence=confidence)
        return errors_at(*judged, threshold)

    return ManyErrors(
        errors(claim_objective(claim)),
        errors(epsilon_objective(claim.delta)),
        errors(fewest_errors),
    )


def claim_objective(claim: Profile) -> Objective:
    """Return how often the FPR that a claim allows exceeds the measured one, in logarithms."""

    def excess(fpr: Floats, fnr: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            one = np.log(claim.least_false_positives(1 - fnr)) - np.log(fpr)
            other = np.log(claim.least_false_positives(1 - fpr)) - np.log(fnr)
        larger: Floats = np.maximum(one, other)
        return larger

    return excess
