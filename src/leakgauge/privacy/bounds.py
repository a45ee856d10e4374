"""Bounds on the success of any adversary, given how much information a gradient carries.

A bound is a certificate only if the information is *known* (``privacy.information``): because the
channel is known, or because a limit holds for every input. A measured success
(``information_from_success``) bounds the information from below and certifies nothing.

Ours (``success_bound``) rests on the data-processing inequality: an adversary whose guess succeeds
with probability s, where guessing without the gradient succeeds with probability q, learns at least
the binary divergence d(s || q) = s log(s/q) + (1-s) log((1-s)/(1-q)). The paper's rests on Fano's
inequality (Eq. 5), which knows the secret by its entropy. For a uniform secret, q = 1/m, they are
the same: d(s || 1/m) = log m - h(1-s) - (1-s) log(m-1). For an uneven one neither is always
smaller: ours is without any information, the paper's if nearly all of the entropy gets through.
``smallest_success_bound`` takes the smaller. All logarithms are natural, all information is in
nats.

References:
    Li et al., CCS 2024, section 6.3 (Eq. 5 to 7).
    Cover and Thomas, Elements of Information Theory, 2nd ed., section 2.10 (Fano).
"""

import math

from numpy.typing import ArrayLike
from scipy import optimize, special

from leakgauge.core.checks import require, require_count
from leakgauge.privacy.information import entropy, possible


def success_bound(information_nats: float, classes: int, *, majority: float | None = None) -> float:
    """Return the largest success rate that any adversary can reach, by data processing (ours).

    It is the largest s with ``information_nats >= d(s || q)``; for a uniform secret that is Eq. 5
    of Li et al. Channels that err symmetrically reach it.

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

    >>> from leakgauge.privacy.information import mutual_information
    >>> noisy = [[0.7 if a == g else 0.06 for g in range(6)] for a in range(6)]
    >>> round(advantage_bound(mutual_information(noisy, [1 / 6] * 6), 6), 6)
    0.64
    """
    guess = _guess(classes, majority)
    success = success_bound(information_nats, classes, majority=majority)
    return (success - guess) / (1.0 - guess)


def fano_success_bound(information_nats: float, prior: ArrayLike) -> float:
    """Return the largest success rate that Fano's inequality leaves, for any prior (Eq. 5).

    It is 1 - e for the smallest error e with ``H(a) - I <= h(e) + e log(m - 1)``, found numerically
    as the paper notes. As ``log m - h(e) - e log(m - 1)`` is d(1 - e || 1/m), that is our bound of
    a uniform secret with ``log m - H(a)`` more nats.

    Args:
        information_nats: as for ``success_bound``.
        prior: ``[m]``, the secret's probabilities; impossible values do not count.

    Returns:
        At least the most probable value's probability, up to 1; to 1e-9.

    >>> round(fano_success_bound(0.368064, [0.5, 0.5]), 6)
    0.9
    >>> round(fano_success_bound(0.0, [0.6, 0.3, 0.1]), 4)  # 0.6 is what guessing reaches
    0.6439

    References:
        Li et al., CCS 2024, section 6.3, Eq. 5.
    """
    _require_information(information_nats)
    p = possible(prior)
    missing = max(0.0, math.log(len(p)) - entropy(p))
    return max(float(p.max()), success_bound(information_nats + missing, len(p)))


def smallest_success_bound(information_nats: float, prior: ArrayLike) -> float:
    """Return the smaller of ``success_bound`` and ``fano_success_bound``.

    Args:
        information_nats: as for ``success_bound``.
        prior: ``[m]``, the secret's probabilities.

    >>> round(smallest_success_bound(0.0, [0.6, 0.3, 0.1]), 4)
    0.6
    """
    p = possible(prior)
    ours = success_bound(information_nats, len(p), majority=float(p.max()))
    return min(ours, fano_success_bound(information_nats, p))


def error_bound_paper(information_nats: float, prior: ArrayLike) -> float:
    """Return the paper's lower bound on the error, ``(H(a) - I - log 2) / log(m - 1)`` (Eq. 6).

    It is Fano's inequality with h(e) replaced by its largest value, log 2.

    Args:
        information_nats: as for ``success_bound``.
        prior: ``[m]``, the secret's probabilities; more than 2 are above 0.

    Returns:
        A number; below 0 the bound is vacuous.

    Raises:
        InputError: the secret has 2 values, for which log(m - 1) is 0.

    >>> round(error_bound_paper(0.1, [0.4, 0.3, 0.2, 0.1]), 5)
    0.44302

    References:
        Li et al., CCS 2024, section 6.3, Eq. 6.
    """
    _require_information(information_nats)
    p = possible(prior)
    require(
        len(p) > 2,
        "Eq. 6 and 7 divide by log(m - 1), which is 0 for 2 values; use fano_success_bound",
    )
    return (entropy(p) - information_nats - math.log(2)) / math.log(len(p) - 1)


def advantage_bound_paper(information_nats: float, prior: ArrayLike) -> float:
    """Return the paper's upper bound on the advantage (Eq. 7), for more than 2 values.

    ``1 - (H(a) - I - log 2) / ((1 - p*) log(m - 1))``, with p* the most probable value's
    probability.

    Args:
        information_nats: as for ``success_bound``.
        prior: as for ``error_bound_paper``.

    Returns:
        A number above 0, even without any information; above 1, from ``I = H(a) - log 2`` on, the
        bound is vacuous.

    Raises:
        InputError: as for ``error_bound_paper``.

    >>> round(advantage_bound_paper(0.698064, [1 / 6] * 6), 5)
    0.70135

    References:
        Li et al., CCS 2024, section 6.3, Eq. 7.
    """
    majority = float(possible(prior).max())
    return 1.0 - error_bound_paper(information_nats, prior) / (1.0 - majority)


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


def describe_bound(information_nats: float, prior: ArrayLike) -> str:
    """Return ``smallest_success_bound`` as a sentence, also if it is vacuous.

    Args:
        information_nats: as for ``success_bound``.
        prior: ``[m]``, the secret's probabilities.

    >>> describe_bound(0.368064, [0.5, 0.5])
    'At most 0.368 nats about a secret of 2 values get through, so no adversary is right more often than 90.0 % of the time (advantage at most 0.800; guessing is right 50.0 % of the time).'
    >>> describe_bound(5.0, [1 / 6] * 6)
    'This bound is vacuous: up to 5 nats may get through and 1.79 are enough to know a secret of 6 values, so an adversary who is always right is not excluded.'
    """  # noqa: E501
    p = possible(prior)
    secret = f"a secret of {len(p)} values"
    nats = f"{float(f'{information_nats:.3g}'):,.12g}"
    guess, success = float(p.max()), smallest_success_bound(information_nats, p)
    advantage = (success - guess) / (1 - guess)
    if success >= 1:
        return (
            f"This bound is vacuous: up to {nats} nats may get through and {entropy(p):.3g} are "
            f"enough to know {secret}, so an adversary who is always right is not excluded."
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
