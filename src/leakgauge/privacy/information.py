"""Information about a secret that gets through a channel, in nats: exact values and upper limits.

The information is *known* for a discrete channel (``mutual_information``). Gaussian noise limits it
for every distribution of gradients: through their power (``gaussian_channel_information``), and
through how far the secret can move them (``sensitivity_information``). All logarithms are natural.

References:
    Li et al., CCS 2024, section 6.3.
    Cover and Thomas, Elements of Information Theory, 2nd ed., chapters 2 and 9.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.results.statistics import Floats


def mutual_information(channel: ArrayLike, prior: ArrayLike) -> float:
    """Return I(secret; observation) of a known discrete channel, in nats.

    Args:
        channel: ``[m, k]``; row a holds the probabilities of the k observations given secret a.
        prior: ``[m]``, the secret's probabilities.

    Returns:
        A number between 0 and the entropy of the prior.

    Raises:
        InputError: the shapes do not fit, or numbers are not probabilities.

    >>> round(mutual_information([[0.9, 0.1], [0.1, 0.9]], [0.5, 0.5]), 6)
    0.368064

    References:
        Cover and Thomas, Elements of Information Theory, section 2.3.
    """
    p = probabilities(prior, "prior", dimensions=1)
    rows = probabilities(channel, "channel", dimensions=2)
    require(
        len(rows) == len(p),
        f"channel has {len(rows)} rows and prior {len(p)} entries; expected one row a secret",
    )
    joint = p[:, None] * rows
    return max(0.0, float(special.rel_entr(joint, p[:, None] * joint.sum(axis=0)).sum()))


def gaussian_channel_information(power: float, sigma: float, dimensions: int) -> float:
    """Return the capacity of Gaussian noise, ``n/2 log(1 + P / sigma^2)``, in nats.

    It bounds the information for every distribution of gradients within the power, hence for
    every secret and model. Gradients clipped to the norm C have ``P <= C^2 / n``. For T rounds
    with fresh noise pass ``T * n`` dimensions and the average power over all of them.

    The paper prints ``1/2 log(1 + P / sigma)`` for ``E ||g||^2 <= n P``. This corrects it: each of
    the n coordinates adds its own term, and sigma is a standard deviation, so it is squared.

    Args:
        power: P, the mean square of a coordinate of the noiseless gradient, averaged over the
            coordinates (a part that is the same for all secrets may be subtracted first).
        sigma: standard deviation of the noise on each coordinate that the adversary sees.
        dimensions: n, number of coordinates.

    >>> round(gaussian_channel_information(power=3.0, sigma=1.0, dimensions=2), 6)
    1.386294

    References:
        Li et al., CCS 2024, section 6.3 (corrected); Cover and Thomas, Elements of Information
        Theory, sections 9.1 and 9.4.
    """
    require(
        math.isfinite(power) and power >= 0, f"power is {power:g}; expected a number of at least 0"
    )
    require_positive(sigma, "sigma")
    require_count(dimensions, "number of dimensions")
    ratio = power / sigma / sigma
    return dimensions / 2 * math.log1p(ratio)


def sensitivity_information(sensitivity: float, sigma: float, prior: ArrayLike) -> float:
    """Return the largest information about a secret in a release that it moves by ``sensitivity``.

    ``(m-1)/2 log(1 + (1 - sum_a P(a)^2) Delta^2 / (2 (m-1) sigma^2))``, whatever the dimension of
    the gradient: most of it is noise that the secret does not touch.

    Proof. With all else fixed, the secret a selects one of m noiseless releases g_a, each two at
    most Delta apart. They lie in m - 1 dimensions, and their mean squared distance from their mean
    is half of ``sum_ab P(a) P(b) ||g_a - g_b||^2``, hence at most
    ``(1 - sum_a P(a)^2) Delta^2 / 2``. The capacity of m - 1 dimensions with that power is the
    bound. What is not fixed (the records, given the secret) changes nothing: the information is
    convex in the channel, so a mixture of such channels carries no more than the best of them. The
    same holds for later rounds, given what the adversary saw before: the bound is concave in the
    posterior, and the mean posterior is the prior. So R rounds with fresh noise carry at most R
    times as much.

    Because ``log(1 + x) <= x``, it is at most half of the mean divergence of two values' releases,
    ``sum_ab P(a) P(b) KL(p_a || p_b) <= (1 - sum_a P(a)^2) Delta^2 / (2 sigma^2)``.

    The paper names a theorem of Guo et al. for bounded sensitivity, without its statement. The
    idea, to bound the information by divergences between values, is theirs; this statement and its
    proof are ours.

    Args:
        sensitivity: Delta, the largest l2 distance between the noiseless releases of two values of
            the secret with all else fixed. Gradients clipped to the norm C give 2 C.
        sigma: standard deviation of the noise on each coordinate of the release.
        prior: the secret's probabilities ``[m]``.

    Raises:
        InputError: a number is out of range, or the prior has a single possible value.

    >>> round(sensitivity_information(1.0, 1.0, [0.5, 0.5]), 6)  # log(1.25) / 2
    0.111572

    References:
        Li et al., CCS 2024, section 6.3; Guo, Sablayrolles and Sanjabi, Analyzing Privacy Leakage
        in Machine Learning via Multiple Hypothesis Testing: A Lesson From Fano, ICML 2023.
    """
    require(
        math.isfinite(sensitivity) and sensitivity >= 0,
        f"sensitivity is {sensitivity:g}; expected a number of at least 0",
    )
    require_positive(sigma, "sigma")
    p = possible(prior)
    dimensions = len(p) - 1
    spread = float((1 - np.square(p).sum()) / 2) * (sensitivity / sigma) ** 2
    return dimensions / 2 * math.log1p(spread / dimensions)


def entropy(prior: ArrayLike) -> float:
    """Return the entropy H(secret) of a prior ``[m]``, in nats.

    >>> round(entropy([0.5, 0.5]), 6)
    0.693147
    """
    return float(special.entr(probabilities(prior, "prior", dimensions=1)).sum())


def possible(prior: ArrayLike) -> Floats:
    """Return the probabilities above 0, at least two.

    Raises:
        InputError: the numbers are not probabilities, or a single value is possible.
    """
    p = probabilities(prior, "prior", dimensions=1)
    values: Floats = p[p > 0]
    require(
        len(values) > 1,
        "the prior leaves only one value of the secret; an adversary has nothing to infer",
    )
    return values


def probabilities(values: ArrayLike, name: str, *, dimensions: int) -> Floats:
    """Return checked probabilities, divided by their sums to remove rounding errors.

    Args:
        values: ``[m]``, or ``[m, k]`` with one distribution per row.
        name: name of the values, for messages.
        dimensions: 1 or 2.

    Raises:
        InputError: the shape is wrong, or the numbers are not probabilities.
    """
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
