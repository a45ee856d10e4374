"""Rounds of a game that were played, and what every game can do."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.types import Dataset, Params, Task
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.games.candidates import CandidateBatches


@dataclass(frozen=True, eq=False)
class Trials:
    """Rounds of a game that were played.

    Attributes:
        secret: codes ``[n]``.
        rows: ``[n, B]`` indices into ``pool``.
        block: ``[n]``; trials of different blocks share no record and no user.
        pool: the private records.
        candidates: batches that the adversary holds, in games that are about them.
    """

    secret: Tensor
    rows: Tensor
    block: Tensor
    pool: Dataset
    candidates: CandidateBatches | None = None

    def __len__(self) -> int:
        return len(self.secret)

    @property
    def x(self) -> Tensor:
        """Features ``[n, B, ...]``."""
        return self.pool.x[self.rows]

    @property
    def y(self) -> Tensor:
        """Labels ``[n, B]``."""
        return self.pool.y[self.rows]


class Game(Protocol):
    """A secret, how private batches depend on it, and what the adversary learns from."""

    @property
    def name(self) -> str:
        """The name at the command line."""
        ...

    @property
    def values(self) -> int:
        """m, how many values the secret has."""
        ...

    @property
    def value_names(self) -> tuple[str, ...]:
        """The secret's values ``[m]`` in words."""
        ...

    @property
    def prior(self) -> tuple[float, ...]:
        """P(a) ``[m]``."""
        ...

    @property
    def block(self) -> NDArray[np.int64]:
        """The block ``[len(pool)]`` of each private record."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What was done to the data and should be known."""
        ...

    def play(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Draw n secrets from the prior and a batch for each."""
        ...

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Fresh batches for the same secrets."""
        ...

    def known_to_defender(self, trials: Trials) -> Tensor | None:
        """The secrets ``[n]`` as a defense that learns on the shadow may use them, if it can."""
        ...

    def shadow(
        self,
        task: Task,
        params: Params,
        data: Dataset,
        *,
        max_bytes: int,
        noise_seed: int = 0,
        held_out_seed: int = 0,
    ) -> Shadow:
        """Return what the adversary learns from in this game: its own records."""
        ...
