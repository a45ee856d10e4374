"""Epsilon of differential privacy for Gaussian noise: for one step and for a whole run.

Neighbouring data sets differ by one record that is added or removed. One step of DP-SGD clips each
record's gradient to the norm C and adds noise of standard deviation ``noise_multiplier * C`` to the
sum: a Gaussian mechanism of sensitivity C.

References:
    Dwork and Roth, The Algorithmic Foundations of Differential Privacy, 2014, Theorem A.1.
    Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018.
    Abadi et al., Deep Learning with Differential Privacy, CCS 2016.
"""

import importlib.util
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import scipy
from scipy import optimize, special

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.core.extras import install_command

if TYPE_CHECKING:
    from dp_accounting import dp_event

Accountant = Literal["rdp", "pld"]

HUGE = 1e6
"""A ratio of sensitivity to noise from which the bound of epsilon is exact to six digits."""

CLASSIC = "classic"
GAUSSIAN = "gaussian"
EXTRA = install_command("dp")
"""The command that installs dp-accounting; the closed forms need only SciPy."""

RECORD_LEVEL = (
    "Epsilon is a guarantee for a single record: its use changes little. It certifies nothing "
    "about a property that the records of a batch share."
)


@dataclass(frozen=True)
class Epsilon:
    """An (epsilon, delta) guarantee.

    Attributes:
        value: epsilon; infinite if the accountant has no finite bound.
        delta: probability with which the guarantee may fail.
        method: ``"classic"``, ``"gaussian"``, ``"rdp"`` or ``"pld"``.
        valid: False if the formula was used outside the range in which it is proven.
    """

    value: float
    delta: float
    method: str
    valid: bool = True


def epsilon_classic(sensitivity: float, sigma: float, delta: float) -> Epsilon:
    """Return the textbook epsilon, ``sensitivity * sqrt(2 log(1.25 / delta)) / sigma``.

    It holds for one release and is proven only for epsilon up to 1; a larger result is marked as
    not valid.

    Args:
        sensitivity: largest change of the release by one record, in l2 norm.
        sigma: standard deviation of the noise on each coordinate.
        delta: in (0, 1).

    >>> gentle = epsilon_classic(1.0, 10.0, 1e-5)
    >>> round(gentle.value, 6), gentle.valid
    (0.484481, True)
    >>> epsilon_classic(1.0, 1.0, 1e-5).valid
    False

    References:
        Dwork and Roth, 2014, Theorem A.1; Li et al., CCS 2024, use it for each step.
    """
    mu = _ratio(sensitivity, sigma)
    _require_delta(delta)
    value = mu * math.sqrt(2 * math.log(1.25 / delta))
    return Epsilon(value, delta, CLASSIC, valid=value <= 1)


def epsilon_gaussian(sensitivity: float, sigma: float, delta: float) -> Epsilon:
    """Return the exact epsilon of the Gaussian mechanism.

    T releases with fresh noise, each computed from all the records, are one release with
    ``sqrt(T)`` times the sensitivity. The arguments are those of ``epsilon_classic``.

    >>> round(epsilon_gaussian(1.0, 1.0, 1e-5).value, 3)
    4.377
    >>> round(epsilon_gaussian(2.0, 0.1, 1e-5).value, 2)
    284.39

    References:
        Balle and Wang, ICML 2018, Theorem 8.
    """
    mu = _ratio(sensitivity, sigma)
    _require_delta(delta)
    target = math.log(delta)
    if _log_delta(0.0, mu) <= target:
        return Epsilon(0.0, delta, GAUSSIAN)
    # delta <= Phi(-t) < exp(-t^2 / 2) for epsilon = mu^2 / 2 + mu t: there it is small enough.
    high = mu * (mu / 2 + math.sqrt(-2 * target))
    if mu > HUGE or _log_delta(high, mu) > target:  # beyond rounding: the upper bound is the result
        return Epsilon(high, delta, GAUSSIAN)
    value = optimize.brentq(lambda e: _log_delta(e, mu) - target, 0.0, high, xtol=1e-14, rtol=1e-13)
    return Epsilon(float(value), delta, GAUSSIAN)


def epsilon_passes(
    noise_multiplier: float,
    passes: int,
    delta: float,
    *,
    last_multiplier: float | None = None,
    last_share: float = 0.0,
) -> Epsilon:
    """Return the epsilon of epochs in which each record is in one batch.

    It holds for any way to form the batches. A record changes one release an epoch, so T epochs
    are T releases of the Gaussian mechanism for it; the bound gains nothing from the secrecy of
    its batch. A removed record counts as a gradient of zero; the others stay in their batches.

    The last batch of an epoch may be smaller; the same noise on its mean is then less noise on its
    sum. A record is in it with a fixed probability that depends on no record, so its delta is at
    most the mean of the deltas over the number of epochs in which it is in that batch.

    Args:
        noise_multiplier: noise multiplier of a full batch; see ``noise_multiplier_of``.
        passes: T, number of epochs.
        delta: in (0, 1).
        last_multiplier: noise multiplier of the smaller batch; None if all batches are full.
        last_share: probability that a record is in the smaller batch, independent in each epoch.

    >>> round(epsilon_passes(2.0, 4, 1e-5).value, 3), round(epsilon_gaussian(1, 1, 1e-5).value, 3)
    (4.377, 4.377)

    References:
        Balle and Wang, ICML 2018, Theorem 8; Dong, Roth and Su, Gaussian Differential Privacy,
        2022, Corollary 3.3 (composition).
    """
    require_positive(noise_multiplier, "noise multiplier")
    require_count(passes, "passes")
    _require_delta(delta)
    last = noise_multiplier if last_multiplier is None else last_multiplier
    require_positive(last, "noise multiplier of the last batch")
    require(0 <= last_share <= 1, f"share is {last_share:g}; expected a number from 0 to 1")
    times = np.arange(passes + 1)
    chance = scipy.stats.binom.logpmf(times, passes, last_share)
    times, chance = times[chance > -np.inf], chance[chance > -np.inf]
    mus = np.sqrt((passes - times) / noise_multiplier**2 + times / last**2)
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        deltas = [_log_delta(epsilon, float(mu)) for mu in mus]
        return float(special.logsumexp(chance + deltas)) - target

    if excess(0.0) <= 0:
        return Epsilon(0.0, delta, GAUSSIAN)
    most = float(mus.max())
    high = most * (most / 2 + math.sqrt(-2 * target))
    value = optimize.brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-12)
    return Epsilon(float(value), delta, GAUSSIAN)


def delta_gaussian(epsilon: float, mu: float) -> float:
    """Return the exact delta of the Gaussian mechanism at ``epsilon``.

    ``Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, without overflow.

    Args:
        epsilon: at least 0.
        mu: sensitivity / sigma.

    >>> round(delta_gaussian(1.0, 1.0), 6)
    0.126937

    References:
        Balle and Wang, ICML 2018, Theorem 8.
    """
    require(epsilon >= 0, f"epsilon is {epsilon:g}; expected a number of at least 0")
    require_positive(mu, "mu")
    return math.exp(_log_delta(epsilon, mu))


def noise_multiplier_of(sigma: float, clip: float, batch_size: int) -> float:
    """Return the ``noise_multiplier`` of DP-SGD for the ``sigma`` of Li et al.

    They add noise of standard deviation ``sigma / sqrt(k)`` to each coordinate of the *mean* of k
    clipped gradients. On the *sum*, k times the mean, that is ``sigma * sqrt(k)``; one record
    moves the sum by at most ``clip``. Accountants and Opacus use the ratio of the two,
    ``sigma * sqrt(k) / clip``.

    Args:
        sigma: as in the paper, before it is divided by sqrt(k).
        clip: C, the norm to which each record's gradient is clipped.
        batch_size: k, number of gradients in the mean (under Poisson sampling the expected number,
            which always divides the sum).

    >>> noise_multiplier_of(0.1, clip=2.0, batch_size=16)
    0.2

    References:
        Li et al., CCS 2024, section 6; Abadi et al., CCS 2016, Algorithm 1.
    """
    require_positive(sigma, "sigma")
    require_positive(clip, "clip")
    require_count(batch_size, "batch size")
    return sigma * math.sqrt(batch_size) / clip


def epsilon_composed(
    noise_multiplier: float,
    sampling_rate: float,
    steps: int,
    delta: float,
    *,
    accountant: Accountant = "pld",
) -> Epsilon:
    """Return the epsilon of a whole run of DP-SGD, by the accountants of dp-accounting.

    It holds if each step draws every record independently with probability ``sampling_rate``
    (Poisson sampling) and adds fresh noise. Batches of a shuffled epoch are drawn differently, and
    their epsilon can be larger.

    Args:
        noise_multiplier: standard deviation of the noise on the sum, over the clipping norm; see
            ``noise_multiplier_of``.
        sampling_rate: in (0, 1].
        steps: number of steps.
        delta: in (0, 1).
        accountant: ``"pld"``, numerical composition of privacy losses, a tight upper bound;
            ``"rdp"``, by Renyi divergences, a looser one. At fractional orders dp-accounting
            counts the alternating terms of a series as positive, which keeps an upper bound;
            Opacus keeps their signs and gets slightly less (7.32911 where the example below
            gives 7.32933).

    >>> round(epsilon_composed(1.5, 0.04, 2250, 1e-5, accountant="rdp").value, 3)
    7.329

    References:
        Mironov, Talwar and Zhang, Renyi Differential Privacy of the Sampled Gaussian Mechanism,
        2019; Doroshenko et al., Connect the Dots: Tighter Discrete Approximations of Privacy Loss
        Distributions, PETS 2022; Chua et al., How Private are DP-SGD Implementations?, ICML 2024
        (shuffling).
    """
    require_positive(noise_multiplier, "noise multiplier")
    require(
        0 < sampling_rate <= 1,
        f"sampling rate is {sampling_rate:g}; expected a share above 0 and up to 1",
    )
    require_count(steps, "steps")
    _require_delta(delta)
    require_choice(accountant, "accountant", get_args(Accountant))
    require(
        accountants_installed(),
        f"dp-accounting is not installed; the epsilon of a whole run needs it: {EXTRA}",
    )
    value = _rdp(noise_multiplier, sampling_rate, steps, delta)
    if accountant == "pld":
        value = _pld(noise_multiplier, sampling_rate, steps, delta, about=value)
    return Epsilon(value, delta, accountant)


def accountants_installed() -> bool:
    """Return whether dp-accounting is installed, as ``epsilon_composed`` requires."""
    return importlib.util.find_spec("dp_accounting") is not None


def _rdp(noise_multiplier: float, sampling_rate: float, steps: int, delta: float) -> float:
    from dp_accounting import rdp

    logger = logging.getLogger("absl")  # warns about omitted Renyi orders; others give epsilon
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        accountant = rdp.RdpAccountant()
        accountant.compose(_training(noise_multiplier, sampling_rate, steps))
        return float(accountant.get_epsilon(delta))
    finally:
        logger.setLevel(level)


def _pld(
    noise_multiplier: float, sampling_rate: float, steps: int, delta: float, *, about: float
) -> float:
    """Return epsilon, at most ``about``, the RDP epsilon, which sets the discretisation."""
    from dp_accounting import pld

    accountant = pld.PLDAccountant(value_discretization_interval=max(1e-4, 1e-5 * about))
    try:
        accountant.compose(_training(noise_multiplier, sampling_rate, steps))
        return min(about, float(accountant.get_epsilon(delta)))
    except OverflowError:  # epsilon beyond millions; both are upper bounds
        return about


def _training(noise_multiplier: float, sampling_rate: float, steps: int) -> "dp_event.DpEvent":
    from dp_accounting import dp_event

    step = dp_event.GaussianDpEvent(noise_multiplier)
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(sampling_rate, step), steps)


def _log_delta(epsilon: float, mu: float) -> float:
    """Return log(delta); the scaled erfcx stays precise where exp(epsilon) overflows."""
    z = mu / 2 - epsilon / mu
    lost = special.erfcx((mu / 2 + epsilon / mu) / math.sqrt(2))
    if z > 0:
        left = special.ndtr(z) - lost * math.exp(-z * z / 2) / 2
        return math.log(left) if left > 0 else -math.inf
    left = special.erfcx(-z / math.sqrt(2)) - lost
    return math.log(left / 2) - z * z / 2 if left > 0 else -math.inf


def _ratio(sensitivity: float, sigma: float) -> float:
    require_positive(sensitivity, "sensitivity")
    require_positive(sigma, "sigma")
    return sensitivity / sigma


def _require_delta(delta: float) -> None:
    require(0 < delta < 1, f"delta is {delta:g}; expected a probability above 0 and below 1")
