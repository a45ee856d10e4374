"""The trials of a game, and the candidate batches that an adversary holds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Dataset
from leakgauge.inference.games.blocks import MIN_BLOCKS


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
        block: the block of each trial ``[n]``; different blocks share no record and no user. All
            trials are in one block if these are drawn from all private records or few users.
        pool: the private records.
        candidates: batches that the adversary holds, in games with candidates.
        users: users ``[n, m]`` of each trial, numbered from 0, if users are so few that all trials
            are in one block; else None.
        units: unit (record or user) of each record of each batch ``[n, B]``, if batches are drawn
            from all private records; else None.
    """

    secret: Tensor
    rows: Tensor
    block: Tensor
    pool: Dataset
    candidates: CandidateBatches | None = None
    users: Tensor | None = None
    units: Tensor | None = None

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


def refuse_few_trials(trials: Trials, values: int) -> None:
    """Refuse trials that try a secret in few blocks, since resampled blocks could miss it.

    If all trials are in one block, the same holds with any one user, or record, left out.

    Args:
        trials: the trials.
        values: m, the number of values of the secret.

    Raises:
        InputError: there are too few.
    """
    where, fewest = "independent groups of records", len(trials)
    for value in range(values):
        tried = trials.secret == value
        shared = trials.units if trials.users is None else trials.users
        if shared is None:
            fewest = min(fewest, len(torch.unique(trials.block[tried])))
        else:
            where = f"trials without some {'user' if trials.units is None else 'record or user'}"
            about = most_shared(shared[tried])
            fewest = min(fewest, int(tried.sum()) - about)
    require(
        fewest >= MIN_BLOCKS,
        f"{len(trials)} trials try one of the {values} secrets on {fewest} {where} only; an "
        f"interval needs {MIN_BLOCKS}: ask for at least {50 * values} --trials",
    )


def most_shared(units: Tensor) -> int:
    """Return the largest number of trials ``[n, k]`` that hold the same unit.

    >>> most_shared(torch.tensor([[4, 4], [7, 4], [7, 9]]))
    2
    """
    if len(units) == 0:
        return 0
    ordered = units.sort(dim=1).values
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return int(torch.unique(ordered[first], return_counts=True)[1].max())
