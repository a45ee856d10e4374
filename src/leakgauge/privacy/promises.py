"""What follows from a filter's noise: the epsilon of one release and of a whole training.

A filter changes what a client sends. Its promise depends on who is protected (the *unit*) and on
what a neighbour is (the *relation*):

| unit | relation | an update clipped to C moves by | a mean of k records clipped to C moves by |
|---|---|---|---|
| client | add | C | C |
| client | replace | 2 C | 2 C |
| record | add | 2 C | C / k |
| record | replace | 2 C | 2 C / k |

A client that is added sent nothing before, which counts as an update of zero. A record that is
added to a client's data may turn its clipped update round, so the update moves by 2 C.

References:
    Balle and Wang, Improving the Gaussian Mechanism for Differential Privacy, ICML 2018.
    Lyu, Su and Li, Understanding the Sparse Vector Technique, VLDB 2017, Theorem 4.
"""

import functools
import math
from dataclasses import dataclass
from typing import Literal, get_args

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.privacy.accounting import accountants_installed
from leakgauge.privacy.estimate import epsilon_of_mu

Protected = Literal["client", "record"]
Relation = Literal["add", "replace"]

CLIENT, RECORD = get_args(Protected)
ADD, REPLACE = get_args(Relation)

FEW = 1_000
"""Number of releases up to which their privacy losses are composed in fine steps."""


@dataclass(frozen=True)
class Neighbours:
    """Who is protected, and how neighbouring inputs differ.

    Attributes:
        unit: ``"client"`` or ``"record"``.
        relation: ``"add"`` (added or removed) or ``"replace"`` (by another one).

    >>> str(Neighbours("client", "replace"))
    'client, replaced'
    """

    unit: Protected = "client"
    relation: Relation = "replace"

    def __post_init__(self) -> None:
        require_choice(self.unit, "unit of privacy", get_args(Protected))
        require_choice(self.relation, "relation of neighbours", get_args(Relation))

    def __str__(self) -> str:
        """Return both in words."""
        return f"{self.unit}, {'replaced' if self.relation == REPLACE else 'added or removed'}"


@dataclass(frozen=True)
class Follows:
    """The epsilon that follows from a mechanism.

    Attributes:
        epsilon: proven upper bound at ``delta``; infinite if the mechanism is not private.
        delta: delta of ``epsilon``.
        least: lower bound of the smallest epsilon at ``delta``; equal to ``epsilon`` where it is
            exact.
        pure: the epsilon at delta 0; infinite for Gaussian noise.
    """

    epsilon: float
    delta: float
    least: float
    pure: float = math.inf


@dataclass(frozen=True)
class GaussianRelease:
    """Clips to an l2 norm and adds Gaussian noise.

    Attributes:
        clip: C, the largest l2 norm of an update, or of each record's gradient.
        noise_std: standard deviation of the noise on each coordinate of what is sent.
        batch: k, the number of records whose clipped gradients are averaged; None where the whole
            update is clipped.
    """

    clip: float
    noise_std: float
    batch: int | None = None

    def __post_init__(self) -> None:
        require_positive(self.clip, "clip")
        require_positive(self.noise_std, "standard deviation of the noise")

    def sensitivity(self, near: Neighbours) -> float:
        """Return the largest l2 distance between what two neighbours send, without noise.

        >>> GaussianRelease(1.0, 1.0).sensitivity(Neighbours("client", "add"))
        1.0
        >>> GaussianRelease(1.0, 1.0, batch=10).sensitivity(Neighbours("record", "replace"))
        0.2
        """
        whole_update = self.batch is None
        twice = near.relation == REPLACE or (whole_update and near.unit == RECORD)
        shared = 1 if whole_update or near.unit == CLIENT else self.batch
        assert shared is not None
        return (2.0 if twice else 1.0) * self.clip / float(shared)

    def follows(self, near: Neighbours, delta: float, *, rounds: int = 1) -> Follows:
        """Return the exact epsilon of ``rounds`` releases, each with fresh noise.

        T releases are one with sqrt(T) times the sensitivity. The secrecy of a batch gains nothing.

        >>> round(GaussianRelease(1.0, 1.0).follows(Neighbours("client", "add"), 1e-5).epsilon, 3)
        4.377
        """
        require_count(rounds, "rounds")
        mu = self.sensitivity(near) / self.noise_std * math.sqrt(rounds)
        epsilon = epsilon_of_mu(mu, delta)
        return Follows(epsilon, delta, epsilon)


@dataclass(frozen=True)
class SparseRelease:
    """The sparse vector technique as NVFlare codes it (2.9): pure noise on chosen coordinates.

    Coordinates are clamped to gamma. Those whose size passes a noisy threshold are accepted, and c
    of these are sent with Laplace noise. The comparisons are noisy enough for c acceptances, but a
    pass over all D coordinates does not stop there, so up to D are paid for. Therefore epsilon at
    delta 0 lies between that of the c values alone and the same with ``epsilon_threshold +
    epsilon_query * D / c`` on top. NVFlare's own account counts ``epsilon`` in its place.

    Attributes:
        coordinates: D, the number of coordinates of an update.
        fraction: share of them that is sent.
        epsilon: epsilon of the choice, by NVFlare's own account.
        noise: epsilon of each coordinate that is sent.
        total: epsilon of all coordinates that are sent (NVFlare's ``epsilon_release``), which
            replaces ``noise``; None where ``noise`` sets it.
        threshold: part of ``epsilon`` that the noise of the threshold gets; None for NVFlare's
            share, 1 of 1 + (2 c)^(2/3).
    """

    coordinates: int
    fraction: float
    epsilon: float
    noise: float
    total: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        require_count(self.coordinates, "number of parameters")
        require(
            0 < self.fraction <= 1,
            f"fraction is {self.fraction:g}; expected a number above 0, at most 1",
        )
        require_positive(self.epsilon, "epsilon")
        require_positive(self.noise if self.total is None else self.total, "noise")
        require(
            self.threshold is None or 0 < self.threshold < self.epsilon,
            f"epsilon of the threshold is {self.threshold}; expected a number between 0 and "
            f"{self.epsilon:g}",
        )

    @property
    def sent(self) -> int:
        """c, the number of coordinates that are sent."""
        return min(math.ceil(self.coordinates * self.fraction), self.coordinates)

    @property
    def each(self) -> float:
        """The epsilon of one coordinate that is sent, between -gamma and gamma."""
        return self.noise if self.total is None else self.total / self.sent

    @property
    def counted(self) -> float:
        """The epsilon of a round by NVFlare's own account."""
        return self.epsilon + self.sent * self.each

    @property
    def choice(self) -> float:
        """Upper bound of the epsilon of the choice of coordinates."""
        share = self.epsilon / (1 + (2 * self.sent) ** (2 / 3))
        threshold = share if self.threshold is None else self.threshold
        return float(threshold + (self.epsilon - threshold) * self.coordinates / self.sent)

    @staticmethod
    def largest_share(near: Neighbours) -> float:
        """Return how far a coordinate may move, as a share of the way from -gamma to gamma.

        An absent client counts as zero, half as far from gamma as -gamma is.
        """
        return 0.5 if near == Neighbours(CLIENT, ADD) else 1.0

    def follows(self, near: Neighbours, delta: float, *, rounds: int = 1) -> Follows:
        """Return the epsilon of ``rounds`` releases, each with fresh noise.

        With delta above 0 it composes the privacy losses of all coordinates sent, by
        dp-accounting; without that package it is the epsilon at delta 0.

        >>> stock = SparseRelease(10_000, fraction=0.1, epsilon=0.1, noise=0.1)
        >>> pure = stock.follows(Neighbours(), 0.0)
        >>> round(stock.counted, 3), round(pure.least, 3), round(pure.epsilon, 3)
        (100.1, 100.0, 100.994)
        """
        require_count(rounds, "rounds")
        require(0 <= delta < 1, f"delta is {delta:g}; expected a probability below 1")
        each = self.each * self.largest_share(near)
        count = self.sent * rounds
        values, choice = count * each, self.choice * rounds
        if delta == 0:
            return Follows(values + choice, 0.0, values, values + choice)
        composed = epsilon_laplace(each, count, delta)
        return Follows(composed + choice, delta, 0.0, values + choice)


def epsilon_laplace(each: float, count: int, delta: float) -> float:
    """Return an upper bound of the epsilon of Laplace mechanisms of ``each`` in composition.

    Args:
        each: epsilon of one mechanism at delta 0.
        count: number of mechanisms.
        delta: in (0, 1).

    >>> round(epsilon_laplace(1.0, 1, 0.1), 2)
    0.79

    References:
        Doroshenko et al., Connect the Dots, PETS 2022 (by dp-accounting).
    """
    require_positive(each, "epsilon of each mechanism")
    require_count(count, "number of mechanisms")
    most = each * count
    return min(most, _composed_laplace(each, count, delta)) if accountants_installed() else most


@functools.cache
def _composed_laplace(each: float, count: int, delta: float) -> float:
    """Return the epsilon of the composition by dp-accounting, which takes a second for many."""
    from dp_accounting.pld import privacy_loss_distribution

    step = each / (100 if count <= FEW else 5)
    try:
        one = privacy_loss_distribution.from_laplace_mechanism(
            1 / each, value_discretization_interval=step
        )
        return max(0.0, float(one.self_compose(count).get_epsilon_for_delta(delta)))
    except (OverflowError, MemoryError):  # epsilon beyond millions; the sum is an upper bound, too
        return each * count
