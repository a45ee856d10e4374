"""What follows from a mechanism's noise: for one pair of releases, and for the worst neighbours."""

from dataclasses import dataclass, field

from leakgauge.core.checks import require, require_count
from leakgauge.guarantee.mechanism import DPSGDMechanism
from leakgauge.privacy.accounting import GAUSSIAN, Epsilon, epsilon_classic
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.promises import (
    RECORD,
    Follows,
    GaussianRelease,
    Neighbours,
    SparseRelease,
    epsilon_laplace,
)
from leakgauge.results.statistics import Floats

NEAR = Neighbours(RECORD, "replace")
"""The neighbours of an audit that names none: it replaces one version of a record by another."""

INFINITE = Epsilon(float("inf"), 0.0, "none")
"""The epsilon of a release that is not private."""


@dataclass(frozen=True)
class PairTheory:
    """Epsilons that follow from a mechanism's noise, at the same delta.

    Attributes:
        pair_exact: of one release, for the audited pair; no test can show more on it. Infinite
            without differential privacy. Several new values use the largest distance:
            distinguishing a mixture from H0 is not easier than distinguishing its furthest
            component.
        mechanism_exact: of one release, for the worst neighbours of ``near``.
        training: of all ``releases``, for the worst neighbours.
        near: unit of privacy, and how neighbours differ.
        releases: number of releases of a training, each with fresh noise.
        pair_pure: as ``pair_exact``, at delta 0; infinite for Gaussian noise.
        mechanism_pure: as ``mechanism_exact``, at delta 0.
        mechanism_least: lower bound of the smallest epsilon at delta 0 for the worst neighbours.
        neighbours: whether the audited pair are neighbours of ``near``.
    """

    pair_exact: Epsilon
    mechanism_exact: Epsilon
    training: Epsilon
    near: Neighbours = NEAR
    releases: int = 1
    pair_pure: Epsilon = INFINITE
    mechanism_pure: Epsilon = INFINITE
    mechanism_least: Epsilon = INFINITE
    neighbours: bool = True


@dataclass(frozen=True)
class Theory(PairTheory):
    """Epsilons that a release with Gaussian noise promises, with those of the paper.

    The audit replaces one version of a record by another, which moves the sum of clipped gradients
    by up to twice the clip. Adding or removing a record moves it by the clip; most
    accountants, and the paper, use that.

    Attributes:
        mechanism_exact_at_clip: exact, if neighbours differ by the clip.
        mechanism_classic: the textbook formula at the clip, as in the paper; proven up to 1 only.
        per_attribute_classic: the paper's yardstick for one of N attributes,
            ``mechanism_classic / N``; it bounds nothing.
    """

    mechanism_exact_at_clip: Epsilon = field(kw_only=True)
    mechanism_classic: Epsilon = field(kw_only=True)
    per_attribute_classic: float = field(kw_only=True)


def theory_of(
    claimed: DPSGDMechanism,
    *,
    distance: float,
    delta: float,
    attributes: int,
    batch: int = 1,
    near: Neighbours = NEAR,
    releases: int = 1,
    whole_update: bool = False,
) -> Theory:
    """Return the promises of Gaussian noise for a pair.

    Args:
        claimed: the DP-SGD that the mechanism claims to be.
        distance: ||clip(g_H0) - clip(g_H1)||, at least 0.
        delta: delta of all epsilons, in (0, 1).
        attributes: N, number of original columns of a record.
        batch: number of gradients in the mean.
        near: unit of privacy and relation of neighbours, for the worst ones.
        releases: number of releases of a training.
        whole_update: whether the clip is that of the whole update, not of each record's gradient.

    >>> theory = theory_of(DPSGDMechanism(2.0, 0.1), distance=2.0, delta=1e-5, attributes=14)
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
    release = GaussianRelease(claimed.clip, std, None if whole_update else batch)

    def exact(moves: float) -> Epsilon:
        return Epsilon(epsilon_of_mu(moves / std, delta), delta, GAUSSIAN)

    def follows(times: int) -> Epsilon:
        return Epsilon(release.follows(near, delta, rounds=times).epsilon, delta, GAUSSIAN)

    classic = epsilon_classic(claimed.clip / batch, std, delta)
    return Theory(
        pair_exact=exact(distance / batch),
        mechanism_exact=follows(1),
        training=follows(releases),
        near=near,
        releases=releases,
        neighbours=distance / batch <= release.sensitivity(near) * (1 + 1e-6),
        mechanism_exact_at_clip=exact(claimed.clip / batch),
        mechanism_classic=classic,
        per_attribute_classic=classic.value / attributes,
    )


LAPLACE = "laplace"


def sparse_theory(
    release: SparseRelease, apart: Floats, *, delta: float, near: Neighbours, releases: int = 1
) -> PairTheory:
    """Return what follows from the sparse vector technique for a pair; upper bounds.

    Args:
        release: the mechanism.
        apart: differences of the clamped coordinates, as a share of their largest difference, one
            row for each new value ``[v, D]``.
        delta: in (0, 1).
        near: unit of privacy and relation of neighbours, for the worst ones.
        releases: number of releases of a training.

    >>> import numpy as np
    >>> release = SparseRelease(2, fraction=0.5, epsilon=0.1, noise=1.0)
    >>> found = sparse_theory(release, np.array([[0.0, 0.5]]), delta=1e-5, near=Neighbours())
    >>> round(found.pair_pure.value, 2), round(found.mechanism_pure.value, 2)
    (0.66, 1.16)
    """
    worst, all_of_them = (release.follows(near, delta, rounds=n) for n in (1, releases))
    pair = max((_sparse_pair(release, row, delta) for row in abs(apart)), key=lambda one: one.pure)
    within = SparseRelease.largest_share(near) * (1 + 1e-6)

    def at(value: float, delta: float) -> Epsilon:
        return Epsilon(value, delta, LAPLACE)

    return PairTheory(
        pair_exact=at(min(pair.epsilon, worst.epsilon), delta),
        mechanism_exact=at(worst.epsilon, delta),
        training=at(all_of_them.epsilon, delta),
        near=near,
        releases=releases,
        pair_pure=at(pair.pure, 0.0),
        mechanism_pure=at(worst.pure, 0.0),
        mechanism_least=at(release.follows(near, 0.0).least, 0.0),
        neighbours=bool(abs(apart).max() <= within),
    )


def _sparse_pair(release: SparseRelease, apart: Floats, delta: float) -> Follows:
    """Return what follows for a pair: its c largest differences may all be sent."""
    largest = sorted(apart, reverse=True)[: release.sent]
    each, count = release.each * float(largest[0]), int(sum(one > 0 for one in largest))
    if count == 0:
        return Follows(0.0, delta, 0.0, 0.0)
    pure = release.each * float(sum(largest)) + release.choice
    composed = epsilon_laplace(each, count, delta) + release.choice
    return Follows(min(pure, composed), delta, 0.0, pure)


def no_theory(delta: float, near: Neighbours, releases: int) -> PairTheory:
    """Return the theory of a release without differential privacy."""
    none = Epsilon(float("inf"), delta, "none")
    return PairTheory(none, none, none, near, releases)
