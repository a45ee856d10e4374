"""Planted clients: what the released models of a federation reveal of a client that takes part.

A planted client sends one direction, as long as the clip allows. The directions of a round are
random, orthonormal, and new in each round. The auditor reads how far each released model moved
along them. A client that takes part moves it by about one clip over the number of clients; the
noise moves it by as much in every other direction. So the other directions of the model show the
noise, and a few planted clients over some rounds bound the epsilon of a client.

If the noise is Gaussian and equal in all directions, with standard deviation 1 / mu of what one
client adds, then ``sqrt(n) mean / s`` of the n scores has a noncentral t distribution with shift
``sqrt(n) mu``. Whatever else a release contains does not depend on the directions. It raises s, so
that the bound is smaller than it could be.

References:
    Andrew et al., One-shot Empirical Privacy Estimation for Federated Learning, ICLR 2024
    (arXiv 2302.03098).
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.rng import stream
from leakgauge.privacy.conformance import MODEL, Check, Conformance
from leakgauge.privacy.dp_audit import DpAudit
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.one_run import LARGEST_MU
from leakgauge.privacy.profile import Profile, profile_of
from leakgauge.privacy.promises import ADD, CLIENT, GaussianRelease, Neighbours
from leakgauge.privacy.whole_audit import WHOLE, KnownShape, audit_known_shape
from leakgauge.privacy.whole_scores import Shift
from leakgauge.results.statistics import Floats

METHOD = f"planted clients ({WHOLE})"


@dataclass(frozen=True)
class Planted:
    """Clients that the auditor plants.

    Attributes:
        members: whether each of them takes part ``[k]``; the others behave honestly.
        seed: seed of the directions; keep it from the federation.

    Raises:
        InputError: none takes part.

    >>> Planted((True, False)).directions(1, 5).shape
    (2, 5)
    """

    members: tuple[bool, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            any(self.members),
            f"none of the {len(self.members)} planted clients takes part; expected one or more",
        )

    @classmethod
    def by_coins(cls, count: int, seed: int) -> "Planted":
        """Return planted clients of whom a fair coin each says whether they take part.

        Coins are flipped again if nobody would take part.

        >>> Planted.by_coins(3, 1).members
        (False, True, True)
        """
        require_count(count, "number of planted clients")
        generator, coins = stream(seed, "planted", "members"), np.zeros(count, bool)
        while not coins.any():
            coins = generator.random(count) < 0.5
        return cls(tuple(map(bool, coins)), seed)

    def directions(self, number: int, size: int) -> Floats:
        """Return orthonormal directions of a round ``[k, size]``.

        Args:
            number: number of the round.
            size: number of coordinates of the model, above the number of planted clients.
        """
        count = len(self.members)
        require(
            count < size,
            f"{count} planted clients in a model of {size} coordinates; expected fewer than these",
        )
        drawn = stream(self.seed, "planted", "directions", number).normal(size=(size, count))
        found, signs = np.linalg.qr(drawn)
        # With these signs the directions are uniform; without them, as the library chooses.
        return np.ascontiguousarray((found * np.sign(np.diag(signs))).T)


@dataclass
class PlantedScores:
    """Scores of planted clients over the rounds, in clips over the number of clients.

    Attributes:
        inside: one score for each client that took part in a round, over the stated noise.
        rest: sum of the squares of all other directions, over the stated noise.
        size: number of these directions.
        rounds: number of rounds.
    """

    inside: list[float] = field(default_factory=list)
    rest: float = 0.0
    size: int = 0
    rounds: int = 0

    def add(
        self,
        moved: Floats,
        directions: Floats,
        present: NDArray[np.bool_],
        *,
        noise: float,
        parts: Floats | None = None,
    ) -> None:
        """Add a round.

        Args:
            moved: how far the model moved, without what the auditor knows ``[size]``, in clips over
                the number of clients.
            directions: directions of the round ``[k, size]``.
            present: whether each planted client took part in it ``[k]``.
            noise: stated noise multiplier.
            parts: what the planted clients themselves moved it along their directions ``[k]``, if
                ``moved`` is without it; None if ``moved`` contains it.
        """
        along = directions[present] @ moved
        planted = along if parts is None else along + parts[present]
        self.inside += [float(one) for one in planted / noise]
        self.rest += max(0.0, float(moved @ moved - along @ along)) / noise**2
        self.size += len(moved) - len(along)
        self.rounds += 1

    @property
    def noise(self) -> float:
        """Standard deviation of the other directions, in that of the stated noise."""
        return math.sqrt(self.rest / self.size)

    @property
    def shift(self) -> Shift:
        """How far one client moves the model in a round, in standard deviations of its noise.

        Raises:
            InputError: no planted client took part in any round.
        """
        count = len(self.inside)
        require(
            count > 0,
            "no planted client took part in a round; add the mod CanaryClients, with the same "
            "seed, to the client app",
        )
        mean = float(np.mean(self.inside))
        if self.rest == 0:
            return Shift(2 * LARGEST_MU * (mean > 0), count**-0.5, self.size)
        return Shift(mean / self.noise, count**-0.5, self.size)

    def check(self) -> Check:
        """Return whether the model has at least the stated noise.

        Whatever else moved the model makes the p-value larger.
        """
        p = float(scipy.stats.chi2(self.size).cdf(self.rest))
        return Check(MODEL, "", 1.0, self.noise, p)


def claim_of_clients(mu: float, rounds: int, delta: float) -> Profile:
    """Return what the noise of a federation promises to a client that is in every round.

    A client that is added counts as one that sent an update of zero before. Sampling of clients
    gains nothing.

    Args:
        mu: clip over standard deviation of the noise in the sum of the updates, in one round.
        rounds: number of rounds, each with new noise.
        delta: delta of the reported epsilons; in (0, 1).

    >>> claim = claim_of_clients(1.0, 1, 1e-5)
    >>> round(claim.epsilon, 3), claim.unit
    (4.377, 'client, added or removed')
    """
    require_positive(mu, "mu of one round")
    require_count(rounds, "rounds")
    release, near = GaussianRelease(1.0, 1 / mu), Neighbours(CLIENT, ADD)
    return profile_of(
        lambda at: release.follows(near, at, rounds=rounds).epsilon, delta, unit=str(near)
    )


def audit_planted(
    scores: PlantedScores,
    claim: Profile,
    *,
    confidence: float = 0.99,
    conformance: Conformance | None = None,
) -> DpAudit:
    """Return what planted clients show against a claim for a client that is in every round.

    Args:
        scores: scores of at least one round.
        claim: claim of the federation for as many rounds.
        confidence: probability that a true claim is not refuted.
        conformance: whether the federation does what it says; None where this is not known.

    Raises:
        InputError: no planted client took part in any round.
    """
    rounds = scores.rounds
    shape = KnownShape(
        scores.shift,
        lambda mu, delta: epsilon_of_mu(mu * math.sqrt(rounds), delta),
        len(scores.inside),
    )
    found = audit_known_shape(shape, claim, confidence=confidence)
    (bound,) = found.bounds
    return replace(
        found,
        bounds=(replace(bound, method=METHOD),),
        refuted_by=(METHOD,) if found.refuted_by else (),
        conformance=conformance,
    )
