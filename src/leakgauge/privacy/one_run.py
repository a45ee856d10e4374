"""Lower bounds of epsilon from a single run with many canaries, each in or out by a fair coin.

Each of m canaries is in the data with probability 1/2, independently. The auditor sees what the
mechanism releases, and guesses for r canaries whether they were in. Differential privacy for one
record bounds how many of these guesses are correct, so that many correct ones refute it. The bounds
need no model of the mechanism, and hold however canaries disturb each other.

The number of guesses must not depend on which canaries were in.

References:
    Steinke, Nasr and Jagielski, Privacy Auditing with One (1) Training Run, NeurIPS 2023
    (arXiv 2305.08846).
    Mahloujifar, Melis and Chaudhuri, Auditing f-Differential Privacy in One Run, ICML 2025
    (arXiv 2410.22235).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import optimize, special

from leakgauge.core.checks import require, require_count
from leakgauge.privacy.estimate import epsilon_of_mu, require_share
from leakgauge.privacy.profile import LeastFalsePositives, gaussian_least_false_positives
from leakgauge.results.statistics import Bools, Floats

LARGEST_EPSILON = 700.0
LARGEST_MU = 40.0
TURNED_BY_CHANCE = 0.1
"""Share of the significance at which coins turn the scores round."""

_SIDE = 64
"""Number of values that a search tries at once; each round narrows the range by this factor."""


@dataclass(frozen=True)
class Guesses:
    """The number of correct guesses on canaries.

    Attributes:
        canaries: m, number of canaries, each in with probability 1/2.
        made: r, number of guesses; the auditor abstained on the others.
        correct: v, number of correct guesses.

    Raises:
        InputError: the number of guesses is 0, above ``canaries``, or below ``correct``.
    """

    canaries: int
    made: int
    correct: int

    def __post_init__(self) -> None:
        require_count(self.canaries, "number of canaries")
        require_count(self.made, "number of guesses")
        require(
            self.made <= self.canaries,
            f"{self.made} guesses on {self.canaries} canaries; expected at most one on each",
        )
        require(
            0 <= self.correct <= self.made,
            f"{self.correct} of {self.made} guesses are correct; expected 0 to {self.made}",
        )


def guess(scores: Floats, included: Bools, made: int) -> Guesses:
    """Return the number of correct guesses, with the highest scores guessed in, the lowest out.

    Args:
        scores: scores of the canaries ``[m]``; larger scores suggest that a canary was in.
        included: whether each canary was in ``[m]``.
        made: r, half of them (rounded up) on the highest scores. Equal scores keep their order.

    >>> guess(np.array([0.1, 3.0, -2.0, 0.5]), np.array([True, True, False, True]), 2)
    Guesses(canaries=4, made=2, correct=2)
    """
    require(
        scores.shape == included.shape and scores.ndim == 1,
        f"scores are {list(scores.shape)}, memberships {list(included.shape)}; expected both [m]",
    )
    require(bool(np.isfinite(scores).all()), "a canary's score is not finite; training diverged")
    require(made <= len(scores), f"{made} guesses on {len(scores)} canaries; expected at most one")
    order = np.argsort(scores, kind="stable")
    out, in_ = order[: made // 2], order[len(order) - (made - made // 2) :]
    correct = int(included[in_].sum() + (~included[out]).sum())
    return Guesses(len(scores), made, correct)


def guess_either_way(
    scores: Floats, included: Bools, made: int, *, confidence: float = 0.99
) -> tuple[Guesses, bool]:
    """Return the guesses, and whether the scores are turned round for them.

    They are turned round if more guesses are wrong than coins explain: then canaries that were in
    have the smaller scores, which reveals them as well. Coins turn them in ``TURNED_BY_CHANCE`` of
    the cases in which they refute a claim as given, so that both directions together refute a true
    claim hardly more often than one.

    Args:
        scores: scores of the canaries ``[m]``; larger scores suggest that a canary was in.
        included: whether each canary was in ``[m]``.
        made: number of guesses.
        confidence: confidence of the test that follows.

    >>> included = np.arange(20) % 2 == 0
    >>> guess_either_way(1.0 * included, included, 20)
    (Guesses(canaries=20, made=20, correct=20), False)
    >>> guess_either_way(-1.0 * included, included, 20)
    (Guesses(canaries=20, made=20, correct=20), True)
    """
    turned = guess(-scores, included, made)
    if p_value_one_run(turned, 0.0, 0.0) < TURNED_BY_CHANCE * significance_of(confidence):
        return turned, True
    return guess(scores, included, made), False


def p_value_one_run(guesses: Guesses, epsilon: float, delta: float) -> float:
    """Return an upper bound of the probability of so many correct guesses under (epsilon, delta).

    ``f(v) + 2 m delta max_i (f(v - i) - f(v)) / i``, where f(v) is the probability of v or more
    successes in r trials of rate ``exp(epsilon) / (1 + exp(epsilon))``.

    Args:
        guesses: guesses of the run.
        epsilon: at least 0.
        delta: in [0, 1).

    >>> round(p_value_one_run(Guesses(10, 10, 10), 0.0, 0.0), 6) == round(0.5**10, 6)
    True

    References:
        Steinke et al., 2023, Theorem 5.2 and Algorithm 1.
    """
    require(epsilon >= 0, f"epsilon is {epsilon:g}; expected a number of at least 0")
    require_share(delta)
    rate, r, v = float(special.expit(epsilon)), guesses.made, guesses.correct
    tail = float(scipy.stats.binom.sf(v - 1, r, rate))
    if delta == 0 or v == 0:
        return tail
    i = np.arange(1, v + 1)  # beyond v the tail stays 1, so that larger i divide more
    more = (scipy.stats.binom.sf(v - i - 1, r, rate) - tail) / i
    return min(1.0, tail + 2 * guesses.canaries * delta * float(more.max()))


def epsilon_one_run(guesses: Guesses, delta: float, *, confidence: float = 0.99) -> float:
    """Return a lower bound of epsilon from one run; 0 if the run shows none.

    Args:
        guesses: guesses of the run.
        delta: in [0, 1).
        confidence: one-sided: the bound is too large with probability ``1 - confidence`` at most.

    >>> bound = epsilon_one_run(Guesses(100, 100, 100), 0.0, confidence=0.95)
    >>> bool(abs(bound - np.log(0.05**0.01 / (1 - 0.05**0.01))) < 1e-6)
    True

    References:
        Steinke et al., 2023.
    """
    significance = significance_of(confidence)

    def excess(epsilon: float) -> float:
        return p_value_one_run(guesses, epsilon, delta) - significance

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
        if high > LARGEST_EPSILON:
            return LARGEST_EPSILON
    low = float(optimize.brentq(excess, 0.0, high, xtol=1e-9))
    return max(0.0, low)


def refuted(guesses: Guesses, least: LeastFalsePositives, significance: Floats | float) -> Bools:
    """Return whether the probability of so many correct guesses is below a significance.

    Let p_i be the probability of exactly i correct guesses, a_i = sum of (j / m) p_j over j >= i,
    b_i the same of ((r - j) / m) p_j. Taking one canary in or out turns a correct guess on it into
    a wrong one, so f-DP requires ``b_(i-1) >= least(a_i)``. The recursion starts at the a_v and b_v
    of a significance and finds the smallest possible a_0 + b_0. The true value is r / m; if the
    smallest one is larger, the significance is impossible.

    Args:
        guesses: guesses of the run.
        least: the claim: smallest FPR of a test with a given power, for both orders of hypotheses.
        significance: ``[...]``; broadcasts with what ``least`` returns.

    References:
        Mahloujifar et al., 2025, Theorem 3.2 and Algorithm 3.
    """
    m, r, v = guesses.canaries, guesses.made, guesses.correct
    level = np.asarray(significance, dtype=float)
    level = level + np.zeros_like(least(level))  # the shape of the answer
    right, wrong = level * v / m, level * (r - v) / m
    for i in range(v - 1, -1, -1):
        fewer = np.maximum(wrong, least(np.minimum(right, 1.0)))
        if np.array_equal(fewer, wrong):
            break  # neither changes any more
        right = right + (fewer - wrong) * (i / (r - i))
        wrong = fewer
    found: Bools = np.asarray(right + wrong > r / m)
    return found


def p_value_f_dp(guesses: Guesses, least: LeastFalsePositives) -> float:
    """Return an upper bound of the probability of so many correct guesses under an f-DP claim.

    Args:
        guesses: guesses of the run.
        least: the claim, such as ``Profile.least_false_positives``.

    Returns:
        Between 1e-12 and 1.

    >>> p_value_f_dp(Guesses(100, 100, 50), gaussian_least_false_positives(1.0))
    1.0
    """

    def impossible(log_levels: Floats) -> Bools:
        return refuted(guesses, least, np.exp(log_levels))

    # Levels above the answer are impossible; the search is over levels from large to small.
    largest = 0.0
    if not bool(impossible(np.array([largest]))[0]):
        return 1.0
    return float(math.exp(-_last_true(lambda x: impossible(-x), -math.log(1e-12))))


def mu_one_run(guesses: Guesses, *, confidence: float = 0.99) -> float:
    """Return a lower bound of the mu of a Gaussian mechanism from one run.

    Args:
        guesses: guesses of the run.
        confidence: as for ``epsilon_one_run``.

    References:
        Mahloujifar et al., 2025, with the trade-off curve of N(0, 1) against N(mu, 1).
    """
    significance = significance_of(confidence)

    def impossible(mu: Floats) -> Bools:
        return refuted(guesses, gaussian_least_false_positives(mu), significance)

    if not bool(impossible(np.zeros(1))[0]):
        return 0.0
    return _last_true(impossible, LARGEST_MU)


def epsilon_one_run_f_dp(guesses: Guesses, delta: float, *, confidence: float = 0.99) -> float:
    """Return the epsilon of the Gaussian mechanism at the lower bound of mu from one run.

    It is larger than ``epsilon_one_run``, because it assumes the errors of Gaussian noise.

    Args:
        guesses: guesses of the run.
        delta: in (0, 1).
        confidence: as for ``epsilon_one_run``.
    """
    return epsilon_of_mu(mu_one_run(guesses, confidence=confidence), delta)


def _last_true(holds: Callable[[Floats], Bools], high: float) -> float:
    """Return the upper end of the interval from 0 in which a condition holds, rounded down."""
    low = 0.0
    while high - low > 1e-9 * max(1.0, high):
        tried = np.linspace(low, high, _SIDE + 1)
        last = int(np.flatnonzero(~np.append(holds(tried[1:]), False))[0])
        if last == _SIDE:
            return high
        low, high = float(tried[last]), float(tried[last + 1])
    return low


def significance_of(confidence: float) -> float:
    """Return the significance of a confidence, a share below 1."""
    require(
        0 < confidence < 1, f"confidence is {confidence:g}; expected a share below 1, like 0.99"
    )
    return 1 - confidence
