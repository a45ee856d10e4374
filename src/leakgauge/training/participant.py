"""Participants of a federation: records, defense, and their turn in a round."""

from dataclasses import dataclass, field
from typing import Protocol as Interface

import numpy as np

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream
from leakgauge.core.types import Dataset
from leakgauge.defenses import Defense, none
from leakgauge.training.local import Mover
from leakgauge.training.state import Tensors


@dataclass(frozen=True, eq=False)
class Turn:
    """Records, defense and seeds of a participant in one round.

    Attributes:
        data: its records in this round.
        defense: defense in this round.
        rng: shuffles the records.
        noise_seed: seed of the defense.
        model_seed: seed of the model's random numbers in training, such as dropout.
        mover: source of the steps in place of the protocol's optimizer; None for the optimizer.
    """

    data: Dataset
    defense: Defense
    rng: np.random.Generator
    noise_seed: int
    model_seed: int
    mover: Mover | None = None


class Trainee(Interface):
    """A participant of any kind; ``Participant`` is the plain one."""

    def __len__(self) -> int:
        """Return the number of its records, which weighs it in averages."""
        ...

    def turn(self, received: Tensors, *, seed: int, number: int, position: int) -> Turn:
        """Return its turn in a round, which depends on the arguments alone.

        Args:
            received: parameters and buffers that the server sent.
            seed: seed of the federation.
            number: number of the round, from 1.
            position: position of the participant, from 0.
        """
        ...


@dataclass(frozen=True, eq=False)
class Participant:
    """A participant with the same records and the same defense in each round.

    Attributes:
        data: its records.
        defense: change of what it sends.

    Raises:
        InputError: it has no records, or the defense needs more than its gradients.
    """

    data: Dataset
    defense: Defense = field(default_factory=none)

    def __post_init__(self) -> None:
        require(len(self.data) > 0, "a participant has no records; leave it out")
        refuse_learned(self.defense)
        require(
            self.defense.task is None,
            f"{self.defense.name!r} changes the model and adds noise to the code of each record; "
            "a participant changes what it sends alone; choose another --defense",
        )

    def __len__(self) -> int:
        return len(self.data)

    def turn(self, received: Tensors, *, seed: int, number: int, position: int) -> Turn:
        """Return its records and defense, with randomness by seed, round and position."""

        def derived(what: str) -> int:
            return derive(seed, "federation", what, number, position)

        rng = stream(derived("batches"))
        return Turn(self.data, self.defense, rng, derived("defense"), derived("model"))


def refuse_learned(defense: Defense) -> None:
    """Refuse a defense that is learned against a secret."""
    require(
        defense.learn is None,
        f"{defense.name!r} is learnt from public gradients against the inference of a secret, and "
        "no secret is defined here; choose another --defense",
    )
