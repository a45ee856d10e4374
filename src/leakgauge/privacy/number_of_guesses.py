"""How many canaries to guess, and what guesses on canaries of a Gaussian mechanism show."""

import math
from bisect import bisect_left

import numpy as np
from scipy import optimize, special

from leakgauge.core.checks import require_count
from leakgauge.privacy.one_run import LARGEST_MU, Guesses, refuted, significance_of
from leakgauge.privacy.profile import LeastFalsePositives
from leakgauge.results.statistics import Floats


def accuracy_of_mu(mu: float, share: float) -> float:
    """Return the expected share of correct guesses on canaries of a Gaussian mechanism.

    Args:
        mu: shift of the score of a canary that is in, in standard deviations.
        share: share of the canaries that are guessed, half of it on each side; in (0, 1].

    >>> round(accuracy_of_mu(2.0, 1.0), 4)  # all are guessed: Phi(1)
    0.8413
    """

    def above(cut: float) -> float:  # by symmetry around mu / 2, cut is measured from there
        return float(special.ndtr(mu / 2 - cut) + special.ndtr(-mu / 2 - cut)) / 2

    cut = 0.0
    if share < 1:
        cut = float(optimize.brentq(lambda at: above(at) - share / 2, 0.0, mu / 2 + 40))
    return float(special.ndtr(mu / 2 - cut) / (2 * above(cut)))


def mu_of_accuracy(accuracy: float, share: float) -> float:
    """Return the inverse of ``accuracy_of_mu``; 0 for an accuracy of one half or less.

    >>> round(mu_of_accuracy(accuracy_of_mu(1.3, 0.2), 0.2), 6)
    1.3
    """
    if accuracy <= 0.5:
        return 0.0
    if accuracy >= accuracy_of_mu(LARGEST_MU, share):
        return LARGEST_MU
    return float(optimize.brentq(lambda mu: accuracy_of_mu(mu, share) - accuracy, 0.0, LARGEST_MU))


def guesses_for(canaries: int, least: LeastFalsePositives, *, confidence: float = 0.99) -> int:
    """Return the number of guesses that detects the smallest violation of a claim.

    It depends on the claim alone, so that the bounds hold for this number.

    Args:
        canaries: m, number of canaries.
        least: the claim.
        confidence: confidence of the test.

    Returns:
        An even number; a quarter of the canaries if no number of guesses refutes the claim.

    >>> from leakgauge.privacy.profile import gaussian_least_false_positives
    >>> guesses_for(500, gaussian_least_false_positives(0.3))
    124
    """
    require_count(canaries, "number of canaries")
    if canaries < 8:
        return canaries
    seen = {}
    for j in range(12):
        made = max(8, 2 * round(canaries * 2 ** (-j / 2) / 2))
        if made <= canaries and made not in seen:
            mu = smallest_seen(canaries, made, least, confidence=confidence)
            seen[made] = math.inf if mu is None else mu
    best = min(seen, key=lambda made: (seen[made], -made))
    return best if math.isfinite(seen[best]) else max(2, 2 * round(canaries / 8))


def smallest_seen(
    canaries: int, made: int, least: LeastFalsePositives, *, confidence: float = 0.99
) -> float | None:
    """Return the smallest mu for which canaries of expected accuracy refute a claim.

    Args:
        canaries: m.
        made: number of guesses.
        least: the claim.
        confidence: confidence of the test.

    Returns:
        None if even guesses without an error would not refute it.
    """
    fewest = fewest_correct(canaries, made, least, confidence=confidence)
    return None if fewest is None else mu_of_accuracy(fewest / made, made / canaries)


def fewest_correct(
    canaries: int, made: int, least: LeastFalsePositives, *, confidence: float = 0.99
) -> int | None:
    """Return the smallest number of correct guesses that refutes a claim; None if none does.

    Args:
        canaries: m.
        made: number of guesses.
        least: the claim.
        confidence: confidence of the test.
    """
    significance = significance_of(confidence)

    def refutes(correct: int) -> bool:
        return bool(refuted(Guesses(canaries, made, correct), least, significance))

    fewest = bisect_left(range(made + 1), True, key=refutes)
    return None if fewest > made else fewest


def accuracy_of_draws(noise: float, draws: Floats, share: float) -> float:
    """Return the expected share of correct guesses where canaries are drawn into some steps.

    Args:
        noise: standard deviation of a score, in what one draw adds to it.
        draws: probability that a canary that is in is drawn 0, 1, ... times ``[k]``.
        share: as for ``accuracy_of_mu``.

    >>> once = accuracy_of_draws(0.5, np.array([0.0, 1.0]), 0.3)  # like a shift by 2
    >>> abs(once - accuracy_of_mu(2.0, 0.3)) < 1e-9
    True
    >>> round(accuracy_of_draws(1e-3, np.array([0.9, 0.1]), 1.0), 2)  # a tenth is ever drawn
    0.53
    """
    counts = np.arange(len(draws))

    def above(cut: float) -> tuple[float, float]:
        inside = float(draws @ special.ndtr((counts - cut) / noise))
        return inside, float(special.ndtr(-cut / noise))

    def cut_at(share_above: float) -> float:
        ends = -40 * noise, len(draws) + 40 * noise
        return float(optimize.brentq(lambda at: sum(above(at)) / 2 - share_above, *ends))

    inside = above(cut_at(share / 2))[0]
    outside = 1 - above(cut_at(1 - share / 2))[1]
    return (inside + outside) / (2 * share)


def largest_noise_seen(
    canaries: int,
    made: int,
    least: LeastFalsePositives,
    draws: Floats,
    *,
    confidence: float = 0.99,
) -> float | None:
    """Return the largest noise with which canaries of expected accuracy refute a claim.

    Args:
        canaries: m.
        made: number of guesses.
        least: the claim.
        draws: as for ``accuracy_of_draws``.
        confidence: confidence of the test.

    Returns:
        Standard deviation of a score, in what one draw adds to it; None if less noise does not
        refute the claim, since too few canaries are drawn.
    """
    fewest, share = fewest_correct(canaries, made, least, confidence=confidence), made / canaries
    if fewest is None:
        return None

    def excess(log_noise: float) -> float:
        return accuracy_of_draws(math.exp(log_noise), draws, share) - fewest / made

    low, high = math.log(1e-2), math.log(1e4)
    if excess(low) <= 0:
        return None
    return math.exp(high if excess(high) >= 0 else float(optimize.brentq(excess, low, high)))
