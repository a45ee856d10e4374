"""The trials of a game, and the candidate batches that an adversary holds."""

from dataclasses import dataclass

from torch import Tensor

from leakgauge.core.types import Dataset


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
