"""Lower bounds of epsilon from whole scores, where the shape of the scores is known.

Guesses count how many canaries are on the right side of a threshold, and assume nothing. Where
scores are Gaussian with the same spread whether a record is in or out, their means and their
spread say more: the shift over the spread is the mu of a Gaussian mechanism, and its confidence
limits are exact (noncentral t).

References:
    Andrew et al., One-shot Empirical Privacy Estimation for Federated Learning, ICLR 2024
    (arXiv 2302.03098), which fits Gaussians to scores of canaries. Its estimate has no confidence
    limit; the limit here is our own derivation.
    Agrawal et al., Let's Ask Gauss: Improved One-Run Privacy Auditing, 2026 (arXiv 2606.12733),
    which reads whole scores of white-box canaries as a pair of Gaussians. Here the draws are known
    too, and the epsilon is that of the sampled steps.
    Johnson and Welch, Applications of the Non-Central t-Distribution, Biometrika 1940.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import optimize, special

from leakgauge.core.checks import require
from leakgauge.privacy.one_run import LARGEST_MU, significance_of
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import Floats

ODD = 1e-5
"""P-value of the shape below which scores do not count as Gaussian with equal spread."""

_FEW = 8
"""Number of scores from which their shape is tested."""

_MANY = 5_000
"""Number of scores of each side up to which the p-value of their shape is accurate."""


@dataclass(frozen=True)
class Shift:
    """How far scores move if a record is in, in standard deviations of their noise.

    Attributes:
        value: the estimate; above it in expectation by a factor of ``1 + 3 / (4 df)`` at most.
        error: its standard error where nothing is shifted.
        df: degrees of freedom of the estimated spread.
    """

    value: float
    error: float
    df: float

    def low(self, confidence: float) -> float:
        """Return the lower confidence limit, at least 0 and at most ``LARGEST_MU``.

        >>> round(Shift(3.0, 0.2, 98).low(0.99), 3)
        2.317
        """
        return self._limit(significance_of(confidence))

    def high(self, confidence: float) -> float:
        """Return the upper confidence limit, at least 0 and at most ``LARGEST_MU``."""
        return self._limit(confidence)

    def refuting(self, least: float, confidence: float) -> float:
        """Return the estimate whose lower limit is ``least``, at most ``2 * LARGEST_MU``.

        >>> round(Shift(0.0, 0.2, 98).refuting(Shift(3.0, 0.2, 98).low(0.99), 0.99), 6)
        3.0
        """
        tail = significance_of(confidence)

        def excess(value: float) -> float:
            return _tail(value / self.error, self.df, least / self.error) - tail

        most = 2 * LARGEST_MU
        return most if excess(most) >= 0 else float(optimize.brentq(excess, 0.0, most, xtol=1e-9))

    def _limit(self, tail: float) -> float:
        """Return the shift under which an estimate as large has the probability ``tail``."""
        t = self.value / self.error

        def excess(mu: float) -> float:
            return _tail(t, self.df, mu / self.error) - tail

        if excess(0.0) >= 0:
            return 0.0
        if excess(LARGEST_MU) <= 0:
            return LARGEST_MU
        return float(optimize.brentq(excess, 0.0, LARGEST_MU, xtol=1e-9))


def _tail(t: float, df: float, center: float) -> float:
    """Return the probability that a noncentral t is above t."""
    if t > 100 * math.sqrt(2 * df):  # only the spread counts, and SciPy's series does not converge
        return float(scipy.stats.chi2.cdf(df * (center / t) ** 2, df))
    if abs(t - center) > 12 * math.sqrt(1 + t**2 / (2 * df)):
        return float(t < center)
    return float(scipy.stats.nct.sf(t, df, center))


def shift_of(out: Floats, inside: Floats) -> Shift:
    """Return the shift of scores, with the spread pooled over both sides.

    Args:
        out: scores without the record ``[n]``, or of canaries that are out.
        inside: scores with it ``[k]``; larger scores suggest that a record is in.

    Raises:
        InputError: a side is empty, there are fewer than three scores, or one is not finite.

    >>> found = shift_of(np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 3.0]))
    >>> found.value, round(found.error, 3), found.df
    (2.0, 0.816, 4)
    """
    n, k = len(out), len(inside)
    require(
        n > 0 and k > 0 and n + k > 2,
        f"{n} scores are out and {k} are in; expected both, and three or more together",
    )
    require(
        bool(np.isfinite(out).all() and np.isfinite(inside).all()),
        "a score is not finite; its training diverged",
    )
    df = n + k - 2
    squares = float(((out - out.mean()) ** 2).sum() + ((inside - inside.mean()) ** 2).sum())
    moved, spread = float(inside.mean() - out.mean()), math.sqrt(squares / df)
    if spread == 0:
        value = 0.0 if moved == 0 else math.copysign(2 * LARGEST_MU, moved)
    else:
        value = moved / spread
    return Shift(value, math.sqrt(1 / n + 1 / k), df)


def mu_of_scores(out: Floats, inside: Floats, *, confidence: float = 0.99) -> Estimate:
    """Return the mu of a Gaussian mechanism from scores, with exact confidence limits.

    It assumes that the scores of both sides are independent and Gaussian with the same spread;
    ``shape_p_value`` tests this.

    Args:
        out: scores without the record ``[n]``.
        inside: scores with it ``[k]``.
        confidence: confidence of each of the two limits alone.

    >>> rng = np.random.default_rng(0)
    >>> found = mu_of_scores(rng.normal(0, 2, 500), rng.normal(2, 2, 500))
    >>> found.low < 1.0 < found.high
    True
    """
    shift = shift_of(out, inside)
    low, high = shift.low(confidence), shift.high(confidence)
    value = min(max(0.0, shift.value), LARGEST_MU)
    return Estimate(value, min(low, value), max(high, value), len(out) + len(inside), confidence)


def shape_p_value(out: Floats, inside: Floats) -> float:
    """Return the p-value of the assumption that scores are Gaussian with the same spread.

    It is the smallest of three tests, times three: F for the spreads, and that of Shapiro and Wilk
    for the shape of each side. Few scores have no test, and the result is 1; scores of a side that
    are all equal are not Gaussian, and it is 0.

    Args:
        out: scores without the record ``[n]``.
        inside: scores with it ``[k]``.

    >>> rng = np.random.default_rng(0)
    >>> shape_p_value(rng.normal(0, 1, 200), rng.normal(3, 1, 200)) > ODD
    True
    >>> shape_p_value(rng.normal(0, 1, 200), rng.exponential(1, 200)) < ODD
    True
    """
    if min(len(out), len(inside)) < _FEW:
        return 1.0
    if min(np.ptp(out), np.ptp(inside)) == 0:
        return 0.0
    ratio = float(inside.var(ddof=1)) / max(float(out.var(ddof=1)), np.finfo(float).tiny)
    law = scipy.stats.f(len(inside) - 1, len(out) - 1)
    spreads = 2 * min(float(law.cdf(ratio)), float(law.sf(ratio)))
    # In units of its range, since Shapiro's test takes very small numbers for equal ones.
    sides = [((side - side.mean()) / np.ptp(side))[:_MANY] for side in (out, inside)]
    shapes = [
        float(scipy.stats.shapiro(side).pvalue) if np.ptp(side) > 0 else 0.0 for side in sides
    ]
    return min(1.0, 3 * min(spreads, *shapes))


def epsilon_of_draws(shares: Floats, mu: float, delta: float) -> float:
    """Return the exact epsilon of a Gaussian score that a record moves by mu each time it is drawn.

    The score is N(0, 1) without the record, and N(k mu, 1) with it, where k is random and not
    known. So is the sum over steps of a record's part in sampled training. It reveals less than
    each step's part, so that the result is a lower bound of the epsilon of training.

    Args:
        shares: probability of k = 0, 1, ... draws ``[K + 1]``.
        mu: shift of one draw, in standard deviations of the score; at least 0.
        delta: in (0, 1).

    >>> from leakgauge.privacy.estimate import epsilon_of_mu
    >>> always = np.array([0.0, 1.0])
    >>> round(epsilon_of_draws(always, 1.0, 1e-5), 6) == round(epsilon_of_mu(1.0, 1e-5), 6)
    True
    >>> epsilon_of_draws(np.array([1.0, 0.0]), 1.0, 1e-5)
    0.0
    """
    require(0 < delta < 1, f"delta is {delta:g}; expected a probability above 0 and below 1")
    drawn = np.flatnonzero(shares > 0)
    with np.errstate(divide="ignore"):
        logs, shifts = np.log(shares[drawn]), mu * drawn
    if not shifts.any():
        return 0.0

    def log_ratio(at: float) -> float:
        return float(special.logsumexp(logs + shifts * at - shifts**2 / 2))

    def removed(at: float) -> float:  # delta of the test that says 'in' above a cut
        above = float(np.exp(logs) @ special.ndtr(shifts - at))
        return above - math.exp(log_ratio(at) + float(special.log_ndtr(-at)))

    def added(at: float) -> float:  # of the test that says 'out' below a cut
        below = special.logsumexp(logs + special.log_ndtr(at - shifts))
        return float(special.ndtr(at)) - math.exp(float(below) - log_ratio(at))

    top = float(shifts.max()) + 40.0
    return max(
        _epsilon_at(lambda at: removed(at) - delta, log_ratio, top),
        _epsilon_at(lambda at: added(-at) - delta, lambda at: -log_ratio(-at), top),
    )


def _epsilon_at(
    excess: Callable[[float], float], log_ratio: Callable[[float], float], top: float
) -> float:
    """Return the log ratio at the cut where delta is met; delta falls as the cut rises."""
    start = float(optimize.brentq(log_ratio, -top, top)) if log_ratio(-top) < 0 else -top
    if excess(start) <= 0:
        return 0.0
    return max(0.0, float(log_ratio(optimize.brentq(excess, start, top, xtol=1e-12))))
