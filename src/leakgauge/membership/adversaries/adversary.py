"""The protocol of a membership attack, and the attacker's knowledge."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.membership.observation import Observed

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Records with known membership.

    Attributes:
        records: observations of the records.
        member: whether each is a member ``[n]``.
    """

    records: Observed
    member: NDArray[np.bool_]

    def at(self, snapshot: int) -> "Labelled":
        """Return the same records at one snapshot, counted from 0."""
        return Labelled(self.records.at(snapshot), self.member)


@dataclass(frozen=True, eq=False)
class ShadowRecords:
    """Observations at a shadow model, which the attacker trained on its own records.

    Attributes:
        fitting: records to learn from, half of them members of the shadow model.
        validation: further records, for choosing an epoch.
    """

    fitting: Labelled
    validation: Labelled


@dataclass(frozen=True, eq=False)
class MembershipKnowledge:
    """The attacker's knowledge before it sees target records.

    Attributes:
        fitting: records with known membership, for supervised attacks.
        validation: further known records, for choices. Neither contains a target.
        shadow: function that trains a shadow model and returns the observations at it.
    """

    fitting: Labelled
    validation: Labelled
    shadow: Callable[[], ShadowRecords]


@dataclass(frozen=True)
class Needs:
    """The observations that an attack needs.

    Attributes:
        layers: number of last layers with gradients; 0 for none, -1 for all.
        hidden: number of last hidden layers with outputs.
        references: number of models that were trained on other records.
    """

    layers: int = 0
    hidden: int = 0
    references: int = 0


class MembershipAdversary(Protocol):
    """A fitted attack."""

    def log_odds(self, records: Observed) -> Floats:
        """Return the log odds ``[n]`` that each record is a member."""
        ...


class MembershipAttack(Protocol):
    """Settings of an attack."""

    name: str
    """The name as typed by the user."""

    @property
    def needs(self) -> Needs:
        """The observations that the attack needs."""
        ...

    def fit(self, known: MembershipKnowledge, *, seed: int) -> MembershipAdversary:
        """Return the attack fitted to the attacker's knowledge; ``seed`` sets all randomness."""
        ...


def log_posterior(log_odds: Floats) -> Floats:
    """Return natural logs of P(no member), P(member) ``[n, 2]``.

    >>> log_posterior(np.array([0.0])).round(4).tolist()
    [[-0.6931, -0.6931]]
    """
    both = torch.from_numpy(np.stack([-log_odds, log_odds], axis=1))
    return np.asarray(torch.nn.functional.logsigmoid(both).numpy(), np.float64)
