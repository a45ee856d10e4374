"""The protocol of an attack on membership, and what an attacker knows."""

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
    """Records whose membership is known.

    Attributes:
        records: what is seen of them.
        member: whether each is a member ``[n]``.
    """

    records: Observed
    member: NDArray[np.bool_]

    def at(self, snapshot: int) -> "Labelled":
        """Return the same records as they are seen at one snapshot, counted from 0."""
        return Labelled(self.records.at(snapshot), self.member)


@dataclass(frozen=True, eq=False)
class ShadowRecords:
    """What an attacker sees at a model of its own, which it trained on records of its own.

    Attributes:
        fitting: its records, half of them members of the shadow model.
        validation: more of them, to choose an epoch by.
    """

    fitting: Labelled
    validation: Labelled


@dataclass(frozen=True, eq=False)
class MembershipKnowledge:
    """What an attacker knows and can make before it judges targets.

    Attributes:
        fitting: records with known membership; supervised attacks learn from them.
        validation: others, to choose by. No target is among either.
        shadow: trains a shadow model, and returns what is seen at it.
    """

    fitting: Labelled
    validation: Labelled
    shadow: Callable[[], ShadowRecords]


@dataclass(frozen=True)
class Needs:
    """What an attack must be shown.

    Attributes:
        layers: the number of last layers whose gradients it uses; 0 for none, -1 for all.
        hidden: the number of last hidden layers whose outputs it uses.
        references: the number of models that were trained on other records.
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
    """Settings of an attack.

    Attributes:
        name: as the user typed it.
        needs: what it must be shown.
    """

    name: str

    @property
    def needs(self) -> Needs:
        """What it must be shown."""
        ...

    def fit(self, known: MembershipKnowledge, *, seed: int) -> MembershipAdversary:
        """Learn from what is known; all randomness follows from ``seed``."""
        ...


def log_posterior(log_odds: Floats) -> Floats:
    """Return natural logs of P(no member), P(member) ``[n, 2]``.

    >>> log_posterior(np.array([0.0])).round(4).tolist()
    [[-0.6931, -0.6931]]
    """
    both = torch.from_numpy(np.stack([-log_odds, log_odds], axis=1))
    posterior: Floats = torch.nn.functional.logsigmoid(both).numpy()
    return posterior
