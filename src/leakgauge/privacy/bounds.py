"""Bounds on the success of any adversary, given how much information a gradient carries.

A bound is a certificate only where the information is *known*: from the channel itself
(``mutual_information``) or from a limit that holds for every input
(``gaussian_channel_information``). A measured success (``information_from_success``) bounds the
information from below and certifies nothing.

The exact bounds rest on the data-processing inequality: an adversary whose guess succeeds with
probability s, where guessing without the gradient succeeds with probability q, learns at least the
binary divergence d(s || q) = s log(s/q) + (1-s) log((1-s)/(1-q)). For a uniform secret,
q = 1/m, this is Fano's inequality: d(s || 1/m) = log m - h(1-s) - (1-s) log(m-1). All logarithms
are natural, all information is in nats.

References:
    Li et al., CCS 2024, section 6.3 (Eq. 5 to 7).
    Cover and Thomas, Elements of Information Theory, 2nd ed., section 2.10 (Fano) and chapter 9
    (Gaussian channel).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special

from leakgauge.core.checks import require, require_count, require_positive

Floats = NDArray[np.float64]


def mutual_information(channel: ArrayLike, prior: ArrayLike) -> float:
    """Return I(secret; observation) of a known discrete channel, in nats.

    Args:
        channel: ``[m, k]``; row a holds the probabilities of the k observations given secret a.
        prior: ``[m]``, the secret's probabilities.

    Returns:
        Between 0 and the entropy of the prior.

    Raises:
        InputError: the shapes do not fit, or numbers are not probabilities.

    >>> round(mutual_information([[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5]), 6)
    0.368064

    References:
        Cover and Thomas, Elements of Information Theory, section 2.3.
    """
    p = _probabilities(prior, "prior", dimensions=1)
    rows = _probabilities(channel, "channel", dimensions=2)
    require(
        len(rows) == len(p),
        f"channel has {len(rows)} rows and prior {len(p)} entries; expected one row a secret",
    )
    joint = p[:, None] * rows
    return max(0.0, float(special.rel_entr(joint, p[:, None] * joint.sum(axis=0)).sum()))


def success_bound(information_nats: float, classes: int, *, majority: float | None = None) -> float:
    """Return the largest success rate that any adversary can reach, by Fano's inequality.

    It is the largest s with ``information_nats >= log m - h(1-s) - (1-s) log(m-1)`` (Li et al.,
    Eq. 5). Channels that err symmetrically reach it.

    Args:
        information_nats: I(secret; observation of the adversary), or an upper limit of it.
        classes: m, number of values of the secret.
        majority: the prior probability of the most probable secret; None for a uniform secret,
            1/m. The bound for a uniform secret does not hold for an uneven one.

    Returns:
        In [majority, 1], to 1e-9.

    >>> round(success_bound(0.368064, 2), 6)
    0.9
    >>> success_bound(0.0, 4)
    0.25
    """
    guess = _guess(classes, majority)
    _require_information(information_nats)
    span = 1.0 - guess
    if information_nats == 0.0:
        return guess
    if information_nats >= _divergence(span, guess):
        return 1.0
    gain = optimize.brentq(
        lambda g: _divergence(g, guess) - information_nats, 0.0, span, xtol=1e-15, rtol=1e-14
    )
    return min(1.0, guess + float(gain))


def advantage_bound(
    information_nats: float, classes: int, *, majority: float | None = None
) -> float:
    """Return the largest advantage that any adversary can reach, ``(s - 1/m) / (1 - 1/m)``.

    Args:
        information_nats: as for ``success_bound``.
        classes: m, number of values of the secret.
        majority: as for ``success_bound``; it replaces 1/m.

    Returns:
        In [0, 1]; 1 is vacuous.

    >>> noisy = [[0.7 if a == g else 0.06 for g in range(6)] for a in range(6)]
    >>> round(advantage_bound(mutual_information(noisy, [1 / 6] * 6), 6), 6)
    0.64
    """
    guess = _guess(classes, majority)
    success = success_bound(information_nats, classes, majority=majority)
    return (success - guess) / (1.0 - guess)


def advantage_bound_paper(information_nats: float, classes: int) -> float:
    """Return the paper's looser bound (Eq. 7) for a uniform secret of more than 2 values.

    With h(error) replaced by its largest value log 2, Fano gives
    ``error >= (log m - I - log 2) / log(m - 1)``, hence
    ``advantage <= 1 - m / (m - 1) * (log m - I - log 2) / log(m - 1)``.

    Args:
        information_nats: as for ``success_bound``.
        classes: m, number of values of the secret, above 2.

    Returns:
        Above 0 even without any information; above 1 where it is vacuous, from
        ``I = log m - log 2`` on.

    Raises:
        InputError: ``classes`` is 2, where log(m - 1) is 0.

    >>> round(advantage_bound_paper(0.698064, 6), 5)
    0.70135

    References:
        Li et al., CCS 2024, section 6.3, Eq. 6 and 7.
    """
    _require_information(information_nats)
    _guess(classes, None)
    require(
        classes > 2,
        "the closed form divides by log(m - 1), which is 0 for 2 classes; use advantage_bound",
    )
    error = (math.log(classes) - information_nats - math.log(2)) / math.log(classes - 1)
    return 1.0 - error * classes / (classes - 1)


def gaussian_channel_information(power: float, sigma: float, dimensions: int) -> float:
    """Return the capacity of Gaussian noise, ``n/2 log(1 + P / sigma^2)``, in nats.

    It bounds the information for every distribution of gradients within the power, hence for
    every secret and model. Gradients clipped to the norm C have ``P <= C^2 / n``. For T rounds
    with fresh noise pass ``T * n`` dimensions and the average power over all of them.

    Args:
        power: P, the mean square of a coordinate of the noiseless gradient, averaged over the
            coordinates (a part that is the same for all secrets may be subtracted first).
        sigma: standard deviation of the noise on each coordinate that the adversary sees.
        dimensions: n, number of coordinates.

    >>> round(gaussian_channel_information(power=3.0, sigma=1.0, dimensions=2), 6)
    1.386294

    References:
        Cover and Thomas, Elements of Information Theory, sections 9.1 and 9.4.
    """
    require(
        math.isfinite(power) and power >= 0, f"power is {power:g}; expected a number of at least 0"
    )
    require_positive(sigma, "sigma")
    require_count(dimensions, "number of dimensions")
    ratio = power / sigma / sigma
    return dimensions / 2 * math.log1p(ratio)


def information_from_success(
    success: float, classes: int, *, majority: float | None = None
) -> float:
    """Return the least information that a success rate implies, in nats: the inverse of Fano.

    An adversary with this success rate learns at least this much. It is a *lower* bound: a better
    adversary may learn more, so no measured success rate, and no mutual information derived from
    one, certifies anything. For a measured rate pass the lower end of its interval. A rate at or
    below that of guessing implies no information.

    Args:
        success: share of secrets that the adversary guesses, in [0, 1].
        classes: m, number of values of the secret.
        majority: as for ``success_bound``.

    >>> round(information_from_success(0.9, 2), 6)
    0.368064
    >>> information_from_success(0.2, 4)
    0.0
    """
    guess = _guess(classes, majority)
    require(0 <= success <= 1, f"success is {success:g}; expected a rate between 0 and 1")
    return _divergence(success - guess, guess) if success > guess else 0.0


def describe_bound(
    information_nats: float,
    classes: int,
    *,
    majority: float | None = None,
    measured: bool = False,
) -> str:
    """Return the bound in plain words, also where it is vacuous.

    Args:
        information_nats: as for ``success_bound``; with ``measured``, as from
            ``information_from_success``.
        classes: m, number of values of the secret.
        majority: as for ``success_bound``.
        measured: whether an adversary measured the information, which then certifies nothing.

    >>> describe_bound(0.368064, 2)
    'At most 0.368 nats about a secret of 2 values get through, so no adversary is right more often than 90.0 % of the time (advantage at most 0.800; guessing is right 50.0 % of the time).'
    >>> describe_bound(5.0, 6)
    'This bound is vacuous: up to 5 nats may get through and 1.79 are enough to know a secret of 6 values, so an adversary who is always right is not excluded.'
    """  # noqa: E501
    secret = f"a secret of {classes} values"
    nats = f"{float(f'{information_nats:.3g}'):,.12g}"
    if measured:
        _require_information(information_nats)
        _guess(classes, majority)
        return (
            f"The adversary learnt at least {nats} nats about {secret}. This is "
            "measured: another adversary may learn more, so it is no certificate."
        )
    guess = _guess(classes, majority)
    success = success_bound(information_nats, classes, majority=majority)
    advantage = (success - guess) / (1 - guess)
    if success >= 1:
        return (
            f"This bound is vacuous: up to {nats} nats may get through and "
            f"{-math.log(guess):.3g} are enough to know {secret}, so an adversary who is always "
            "right is not excluded."
        )
    nearly = "This bound is nearly vacuous. " if advantage > 0.99 else ""
    return (
        f"{nearly}At most {nats} nats about {secret} get through, so no adversary "
        f"is right more often than {success:.1%} of the time (advantage at most {advantage:.3f}; "
        f"guessing is right {guess:.1%} of the time).".replace("%", " %")
    )


def _divergence(gain: float, guess: float) -> float:
    """Return d(guess + gain || guess) in nats, without cancellation."""
    rest = 1.0 - guess
    return guess * _excess(gain / guess) + rest * _excess(-gain / rest)


def _excess(x: float) -> float:
    """Return (1 + x) log(1 + x) - x, which is about x^2 / 2 for small x."""
    if abs(x) < 0.01:
        return math.fsum((-x) ** k / (k * (k - 1)) for k in range(2, 11))
    return float(special.xlog1py(1.0 + x, x)) - x


def _guess(classes: int, majority: float | None) -> float:
    """Return the success rate of guessing without the gradient."""
    require_count(classes, "number of classes")
    require(classes >= 2, f"number of classes is {classes}; a secret has at least 2 values")
    if majority is None:
        return 1.0 / classes
    require(
        1.0 / classes - 1e-9 <= majority < 1,
        f"majority is {majority:g}; expected at least 1/{classes} and below 1",
    )
    return majority


def _require_information(nats: float) -> None:
    require(nats >= 0, f"information is {nats:g} nats; expected a number of at least 0")


def _probabilities(values: ArrayLike, name: str, *, dimensions: int) -> Floats:
    """Return checked probabilities, divided by their sums to remove rounding errors."""
    p = np.asarray(values, dtype=np.float64)
    require(
        p.ndim == dimensions and p.size > 0,
        f"{name} has shape {p.shape}; expected {'[m]' if dimensions == 1 else '[m, k]'}",
    )
    least = float(p.min())
    require(least >= 0, f"{name} holds {least:g}; expected probabilities")
    total = p.sum(axis=-1, keepdims=True)
    worst = float(total.flat[np.argmax(np.abs(total - 1))])
    require(
        abs(worst - 1) <= 1e-6,
        f"the probabilities of {'the' if dimensions == 1 else 'a row of the'} {name} sum to "
        f"{worst:g}; expected 1",
    )
    normal: Floats = p / total
    return normal
