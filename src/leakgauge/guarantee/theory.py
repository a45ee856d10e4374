"""Promises of theory for a mechanism and for one pair, without a measurement."""

from dataclasses import dataclass

from leakgauge.core.checks import require, require_count
from leakgauge.guarantee.mechanism import DPSGD
from leakgauge.privacy.accounting import GAUSSIAN, Epsilon, epsilon_classic
from leakgauge.privacy.estimate import epsilon_of_mu


@dataclass(frozen=True)
class Theory:
    """Epsilons that one release of DP-SGD promises, all at the same delta.

    The game replaces one version of a record by another, which moves the sum of clipped gradients
    by up to twice the clip. Adding or removing a record moves it by the clip; most
    accountants, and the paper, use that.

    Attributes:
        pair_exact: at this pair's true distance ||clip(g_H0) - clip(g_H1)||; no test can show
            more on it. Of several new values it is at the largest distance: a mixture of releases
            is no easier to tell from H0 than the furthest of them.
        mechanism_exact: at 2 * clip, for the worst pair.
        mechanism_exact_at_clip: at the clip.
        mechanism_classic: the textbook formula at the clip, as in the paper; proven up to 1 only.
        per_attribute_classic: the paper's yardstick for one of N attributes,
            ``mechanism_classic / N``; it bounds nothing.
    """

    pair_exact: Epsilon
    mechanism_exact: Epsilon
    mechanism_exact_at_clip: Epsilon
    mechanism_classic: Epsilon
    per_attribute_classic: float


def theory_of(
    claimed: DPSGD, *, distance: float, delta: float, attributes: int, batch: int = 1
) -> Theory:
    """Return the promises of DP-SGD for a pair.

    Args:
        claimed: the DP-SGD that the mechanism claims to be.
        distance: ||clip(g_H0) - clip(g_H1)||, at least 0.
        delta: in (0, 1).
        attributes: N, original columns of a record.
        batch: number of gradients in the mean.

    >>> theory = theory_of(DPSGD(2.0, 0.1), distance=2.0, delta=1e-5, attributes=14)
    >>> round(theory.pair_exact.value, 2), round(theory.mechanism_exact_at_clip.value, 2)
    (284.39, 284.39)
    >>> round(theory.mechanism_classic.value, 1), theory.mechanism_classic.valid
    (96.9, False)

    References:
        Li et al., CCS 2024, section 7; Balle and Wang, ICML 2018.
    """
    require_count(attributes, "number of attributes")
    require_count(batch, "batch size")
    require(distance >= 0, f"distance is {distance:g}; expected a number of at least 0")
    std = claimed.std(batch)

    def exact(moves_sum: float) -> Epsilon:
        return Epsilon(epsilon_of_mu(moves_sum / batch / std, delta), delta, GAUSSIAN)

    classic = epsilon_classic(claimed.clip / batch, std, delta)
    return Theory(
        pair_exact=exact(distance),
        mechanism_exact=exact(2 * claimed.clip),
        mechanism_exact_at_clip=exact(claimed.clip),
        mechanism_classic=classic,
        per_attribute_classic=classic.value / attributes,
    )
