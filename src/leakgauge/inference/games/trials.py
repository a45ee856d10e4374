"""The trials of a game, and the protocol of all games."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.types import Dataset, Params, Task
from leakgauge.inference.adversaries.shadow import Shadow


@dataclass(frozen=True, eq=False)
class CandidateBatches:
    """The m candidate batches of each trial, which the adversary holds.

    Attributes:
        pool: the records of the candidates.
        rows: the records of u different batches ``[u, B]``, as indices into ``pool``.
        index: the batch of each trial's candidates ``[n, m]``, ordered by the secret's codes.
        secret: the secret of each batch ``[u]``, if a defense uses it.
    """

    pool: Dataset
    rows: Tensor
    index: Tensor
    secret: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Trials:
    """n trials of a game: a secret and a batch each.

    Attributes:
        secret: the code of each trial's secret ``[n]``.
        rows: the records of each batch ``[n, B]``, as indices into ``pool``.
        block: the block of each trial ``[n]``; different blocks share no record and no user.
        pool: the private records.
        candidates: batches that the adversary holds, in games with candidates.
        users: users ``[n, m]`` of each trial, numbered from 0, if users are so few that all trials
            are in one block; else None.
    """

    secret: Tensor
    rows: Tensor
    block: Tensor
    pool: Dataset
    candidates: CandidateBatches | None = None
    users: Tensor | None = None

    def __len__(self) -> int:
        return len(self.secret)

    @property
    def x(self) -> Tensor:
        """The features of the batches ``[n, B, ...]``."""
        return self.pool.x[self.rows]

    @property
    def y(self) -> Tensor:
        """The labels of the batches ``[n, B]``."""
        return self.pool.y[self.rows]


class Game(Protocol):
    """A secret, the private batches that depend on it, and the adversary's shadow."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    @property
    def values(self) -> int:
        """m, number of values of the secret."""
        ...

    @property
    def value_names(self) -> tuple[str, ...]:
        """The secret's values ``[m]`` in words."""
        ...

    @property
    def prior(self) -> tuple[float, ...]:
        """The probability P(a) of each value ``[m]``."""
        ...

    @property
    def block(self) -> NDArray[np.int64]:
        """The block ``[len(pool)]`` of each private record."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Changes to the data that users should know."""
        ...

    def draw_trials(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Return n trials: secrets drawn from the prior, and a batch for each."""
        ...

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Return the same trials with new batches for the same secrets."""
        ...

    def known_to_defender(self, trials: Trials) -> Tensor | None:
        """Return the secrets ``[n]`` that a learned defense may use, or None."""
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
        """Return the adversary's shadow in this game."""
        ...
