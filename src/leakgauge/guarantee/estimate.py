"""What an attack's errors say about epsilon, with exact binomial intervals.

An (epsilon, delta) mechanism allows no test with ``FPR * exp(epsilon) + delta < 1 - FNR``, nor
with the two errors exchanged. So each test bounds epsilon from below; the interval's low end is
such a bound, its high end one of what this test could show, and none of epsilon.
"""

import math
from dataclasses import dataclass

from scipy import special

from leakgauge.core.checks import require, require_count
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import clopper_pearson


@dataclass(frozen=True)
class Errors:
    """How often a test of H0 against H1 was wrong.

    Attributes:
        false_positives: of ``negatives`` trials under H0.
        false_negatives: of ``positives`` trials under H1.
    """

    false_positives: int
    false_negatives: int
    negatives: int
    positives: int

    def __post_init__(self) -> None:
        pairs = (self.false_positives, self.negatives), (self.false_negatives, self.positives)
        for wrong, of in pairs:
            require_count(of, "number of trials")
            require(0 <= wrong <= of, f"{wrong} errors in {of} trials; expected 0 to {of}")

    @property
    def trials(self) -> int:
        """Under both hypotheses together."""
        return self.negatives + self.positives


def epsilon_clopper_pearson(errors: Errors, delta: float, *, confidence: float = 0.95) -> Estimate:
    """The epsilon that a test shows: the larger of both orders of the errors.

    Args:
        errors: of a test that was chosen on other trials.
        delta: in [0, 1).
        confidence: each error's Clopper-Pearson interval is two-sided with it, so that both
            upper ends hold together with this confidence at least, and with them ``low``.

    Returns:
        ``value`` counts an error that never happened as one that happened once; ``high`` is
        infinite where there was none.

    References:
        Jagielski, Ullman and Oprea, Auditing Differentially Private Machine Learning, 2020.

    >>> found = epsilon_clopper_pearson(Errors(0, 0, 500, 500), 0.0, confidence=0.99)
    >>> round(found.low, 2), found.high
    (4.54, inf)
    """
    require_share(delta)
    bounds = [clopper_pearson(*pair, confidence) for pair in _pairs(errors)]
    (fpr, least_fpr), (fnr, least_fnr) = ((wrong / of, 1 / of) for wrong, of in _pairs(errors))
    value = epsilon_of_errors(fpr, fnr, delta, least=(least_fpr, least_fnr))
    low, high = (epsilon_of_errors(bounds[0][end], bounds[1][end], delta) for end in (1, 0))
    return Estimate(value, low, high, errors.trials, confidence)


def mu_clopper_pearson(errors: Errors, *, confidence: float = 0.95) -> Estimate:
    """The mu that a test shows: it is as good as the best one between N(0, 1) and N(mu, 1).

    Args:
        errors: of a test that was chosen on other trials.
        confidence: as for ``epsilon_clopper_pearson``.

    Returns:
        ``Phi^-1(1 - FPR) - Phi^-1(FNR)``, at least 0; errors as in ``epsilon_clopper_pearson``.

    References:
        Dong, Roth and Su, Gaussian Differential Privacy, 2022; Nasr et al., Tight Auditing of
        Differentially Private Machine Learning, 2023.

    >>> round(mu_clopper_pearson(Errors(308538, 308538, 10**6, 10**6)).value, 4)
    1.0
    """
    bounds = [clopper_pearson(*pair, confidence) for pair in _pairs(errors)]
    value = mu_of_errors(*(max(wrong, 1) / of for wrong, of in _pairs(errors)))
    low, high = (mu_of_errors(bounds[0][end], bounds[1][end]) for end in (1, 0))
    return Estimate(value, low, high, errors.trials, confidence)


def epsilon_gaussian_dp(errors: Errors, delta: float, *, confidence: float = 0.95) -> Estimate:
    """The exact epsilon of the Gaussian mechanism whose mu the test shows.

    It says more than ``epsilon_clopper_pearson`` since it takes the noise to be Gaussian, as the
    mechanism claims; if ``low`` is above the claimed epsilon, the claim is refuted.

    Args:
        errors: of a test that was chosen on other trials.
        delta: in (0, 1).
        confidence: as for ``epsilon_clopper_pearson``.

    >>> found = epsilon_gaussian_dp(Errors(308538, 308538, 10**6, 10**6), 1e-5)
    >>> round(found.value, 2), found.low < 4.377 < found.high
    (4.38, True)
    """
    mu = mu_clopper_pearson(errors, confidence=confidence)
    value, low, high = (epsilon_of_mu(one, delta) for one in (mu.value, mu.low, mu.high))
    return Estimate(value, low, high, errors.trials, confidence)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """``epsilon_gaussian`` at sensitivity mu and sigma 1; 0 without a shift that delta leaves.

    >>> epsilon_of_mu(1e-16, 1e-5), round(epsilon_of_mu(1.0, 1e-5), 3)
    (0.0, 4.377)
    """
    # At epsilon 0 delta is 2 Phi(mu / 2) - 1, which is at most mu / sqrt(2 pi).
    if mu <= delta * math.sqrt(2 * math.pi):
        return 0.0
    return math.inf if math.isinf(mu) else epsilon_gaussian(mu, 1.0, delta).value


def largest_showable(trials: int, delta: float, *, confidence: float = 0.95) -> Estimate:
    """What ``epsilon_clopper_pearson`` gives where not one of the trials goes wrong.

    Args:
        trials: under both hypotheses together, half of them under each.
        delta: in [0, 1).
        confidence: of the interval.

    Raises:
        InputError: so few trials that even then the lower bound is 0.

    >>> most = largest_showable(5000, 1e-5)
    >>> round(most.value, 2), round(most.low, 2)
    (7.82, 6.52)
    """
    require_share(delta)
    half = _half(trials)
    most = epsilon_clopper_pearson(Errors(0, 0, half, half), delta, confidence=confidence)
    if most.low > 0:
        return most
    # Without an error the upper end is 1 - ((1 - confidence) / 2)^(1 / half); 0.5 shows nothing.
    least = 2 * (math.floor(math.log((1 - confidence) / 2) / math.log((1 + delta) / 2)) + 1)
    require(
        False,
        f"{trials} trials cannot show any epsilon at delta {delta:g}, even if the attack is never "
        f"wrong; expected {least} or more",
    )
    return most


def epsilon_of_errors(
    fpr: float, fnr: float, delta: float, *, least: tuple[float, float] = (0.0, 0.0)
) -> float:
    """The epsilon that known errors show, at least 0.

    What is divided by counts as ``least`` at least: the smallest FPR and FNR that are seen.
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
    """The mu that known errors show, at least 0."""
    if fpr >= 1 or fnr >= 1:
        return 0.0
    return max(0.0, float(-special.ndtri(fpr) - special.ndtri(fnr)))


def _pairs(errors: Errors) -> tuple[tuple[int, int], tuple[int, int]]:
    return (
        (errors.false_positives, errors.negatives),
        (errors.false_negatives, errors.positives),
    )


def _half(trials: int) -> int:
    require_count(trials, "number of trials")
    require(trials >= 2, f"number of trials is {trials}; expected 2 or more, half for each version")
    return trials // 2


def require_share(delta: float) -> None:
    """Refuse a delta outside of [0, 1)."""
    require(0 <= delta < 1, f"delta is {delta:g}; expected a probability below 1")
