"""Lower bounds of epsilon from the errors of a test, with exact binomial intervals.

An (epsilon, delta) mechanism allows no test with ``FPR * exp(epsilon) + delta < 1 - FNR``, nor
with the two errors exchanged. So each test bounds epsilon from below. The low end of an interval
is such a bound; its high end bounds what this test could show, and does not bound epsilon.
"""

import math
from dataclasses import dataclass

from scipy import optimize, special

from leakgauge.core.checks import InputError, require, require_count, require_positive
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import clopper_pearson


@dataclass(frozen=True)
class Errors:
    """Numbers of errors of a test of H0 against H1.

    Attributes:
        false_positives: errors under H0.
        false_negatives: errors under H1.
        negatives: trials under H0.
        positives: trials under H1.

    Raises:
        InputError: a number of trials is 0, or smaller than its errors.
    """

    false_positives: int
    false_negatives: int
    negatives: int
    positives: int

    def __post_init__(self) -> None:
        for wrong, of in self.pairs:
            require_count(of, "number of trials")
            require(0 <= wrong <= of, f"{wrong} errors in {of} trials; expected 0 to {of}")

    @property
    def pairs(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Errors and trials under H0, then under H1."""
        return (self.false_positives, self.negatives), (self.false_negatives, self.positives)

    @property
    def trials(self) -> int:
        """The number of trials under both hypotheses together."""
        return self.negatives + self.positives


def epsilon_clopper_pearson(errors: Errors, delta: float, *, confidence: float = 0.95) -> Estimate:
    """Return the epsilon that a test shows: the larger of both orders of the errors.

    Args:
        errors: errors of a test that was chosen on other trials.
        delta: in [0, 1).
        confidence: two-sided confidence of each error's Clopper-Pearson interval, so that both
            upper ends, and with them ``low``, hold together with at least this confidence.

    Returns:
        An estimate. ``value`` counts zero errors as one error; ``high`` is then infinite.

    References:
        Jagielski, Ullman and Oprea, Auditing Differentially Private Machine Learning, 2020.

    >>> epsilon = epsilon_clopper_pearson(Errors(0, 0, 500, 500), 0.0, confidence=0.99)
    >>> round(epsilon.low, 2), epsilon.high
    (4.54, inf)
    """
    require_share(delta)
    first, second = (clopper_pearson(*pair, confidence) for pair in errors.pairs)
    (fpr, least_fpr), (fnr, least_fnr) = ((wrong / of, 1 / of) for wrong, of in errors.pairs)
    value = epsilon_of_errors(fpr, fnr, delta, least=(least_fpr, least_fnr))
    low, high = (epsilon_of_errors(first[end], second[end], delta) for end in (1, 0))
    return Estimate(value, low, high, errors.trials, confidence)


def mu_clopper_pearson(errors: Errors, *, confidence: float = 0.95) -> Estimate:
    """Return mu such that the best test of N(0, 1) against N(mu, 1) has the same errors.

    Args:
        errors: errors of a test that was chosen on other trials.
        confidence: as for ``epsilon_clopper_pearson``.

    Returns:
        ``Phi^-1(1 - FPR) - Phi^-1(FNR)``, at least 0; errors as in ``epsilon_clopper_pearson``.

    References:
        Dong, Roth and Su, Gaussian Differential Privacy, 2022; Nasr et al., Tight Auditing of
        Differentially Private Machine Learning, 2023.

    >>> round(mu_clopper_pearson(Errors(308538, 308538, 10**6, 10**6)).value, 4)
    1.0
    """
    bounds = [clopper_pearson(*pair, confidence) for pair in errors.pairs]
    value = mu_of_errors(*(max(wrong, 1) / of for wrong, of in errors.pairs))
    low, high = (mu_of_errors(bounds[0][end], bounds[1][end]) for end in (1, 0))
    return Estimate(value, low, high, errors.trials, confidence)


def epsilon_gaussian_dp(errors: Errors, delta: float, *, confidence: float = 0.95) -> Estimate:
    """Return the exact epsilon of the Gaussian mechanism whose mu the test shows.

    It is larger than ``epsilon_clopper_pearson`` because it assumes Gaussian noise, as the
    mechanism claims. If ``low`` is above the claimed epsilon, the claim is refuted.

    Args:
        errors: errors of a test that was chosen on other trials.
        delta: in (0, 1).
        confidence: as for ``epsilon_clopper_pearson``.

    >>> epsilon = epsilon_gaussian_dp(Errors(308538, 308538, 10**6, 10**6), 1e-5)
    >>> round(epsilon.value, 2), epsilon.low < 4.377 < epsilon.high
    (4.38, True)
    """
    mu = mu_clopper_pearson(errors, confidence=confidence)
    value, low, high = (epsilon_of_mu(one, delta) for one in (mu.value, mu.low, mu.high))
    return Estimate(value, low, high, errors.trials, confidence)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """Return ``epsilon_gaussian`` at sensitivity mu and sigma 1; 0 if delta covers the shift.

    >>> epsilon_of_mu(1e-16, 1e-5), round(epsilon_of_mu(1.0, 1e-5), 3)
    (0.0, 4.377)
    """
    # At epsilon 0 delta is 2 Phi(mu / 2) - 1, which is at most mu / sqrt(2 pi).
    if mu <= delta * math.sqrt(2 * math.pi):
        return 0.0
    return math.inf if math.isinf(mu) else epsilon_gaussian(mu, 1.0, delta).value


def noise_for_epsilon(epsilon: float, sensitivity: float, delta: float) -> float:
    """Return the smallest noise of the Gaussian mechanism that promises an epsilon.

    Args:
        epsilon: the epsilon to promise, above 0.
        sensitivity: largest change of the release by one record, in l2 norm.
        delta: in (0, 1).

    >>> sigma = noise_for_epsilon(1.0, 2.0, 1e-5)
    >>> round(sigma, 3), round(epsilon_gaussian(2.0, sigma, 1e-5).value, 6)
    (7.461, 1.0)

    References:
        Balle and Wang, ICML 2018, Algorithm 1.
    """
    require_positive(epsilon, "epsilon")
    require_positive(sensitivity, "sensitivity")
    most = 1.0
    while epsilon_of_mu(most, delta) < epsilon:
        most *= 2
    mu = optimize.brentq(
        lambda one: epsilon_of_mu(one, delta) - epsilon, 0.0, most, xtol=1e-13, rtol=1e-12
    )
    return sensitivity / float(mu)


def largest_showable(trials: int, delta: float, *, confidence: float = 0.95) -> Estimate:
    """Return ``epsilon_clopper_pearson`` for trials without a single error.

    Args:
        trials: number of trials, half of them under each hypothesis.
        delta: in [0, 1).
        confidence: two-sided.

    Raises:
        InputError: the lower bound of so few trials is 0 even without an error.

    >>> most = largest_showable(5000, 1e-5)
    >>> round(most.value, 2), round(most.low, 2)
    (7.82, 6.52)
    """
    require_share(delta)
    require_count(trials, "number of trials")
    require(trials >= 2, f"number of trials is {trials}; expected 2 or more, half for each version")
    half = trials // 2
    most = epsilon_clopper_pearson(Errors(0, 0, half, half), delta, confidence=confidence)
    if most.low > 0:
        return most
    # Without an error the upper end is 1 - ((1 - confidence) / 2)^(1 / half); 0.5 shows nothing.
    least = 2 * (math.floor(math.log((1 - confidence) / 2) / math.log((1 + delta) / 2)) + 1)
    raise InputError(
        f"{trials} trials cannot show any epsilon at delta {delta:g}, even if the attack is never "
        f"wrong; expected {least} or more"
    )


def epsilon_of_errors(
    fpr: float, fnr: float, delta: float, *, least: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Return the epsilon that two error rates show, at least 0.

    Args:
        fpr: false positive rate.
        fnr: false negative rate.
        delta: in [0, 1).
        least: smallest (FPR, FNR) used as divisors.
    """
    return max(
        0.0,
        _log_ratio(1 - delta - fnr, max(fpr, least[0])),
        _log_ratio(1 - delta - fpr, max(fnr, least[1])),
    )


def _log_ratio(above: float, below: float) -> float:
    if above <= 0:
        return -math.inf
    return math.inf if below == 0 else math.log(above / below)


def mu_of_errors(fpr: float, fnr: float) -> float:
    """Return the mu that two error rates show, at least 0."""
    if fpr >= 1 or fnr >= 1:
        return 0.0
    return max(0.0, float(-special.ndtri(fpr) - special.ndtri(fnr)))


def require_share(delta: float) -> None:
    """Raise ``InputError`` for a delta outside of [0, 1)."""
    require(0 <= delta < 1, f"delta is {delta:g}; expected a probability below 1")
