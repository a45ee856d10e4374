"""User inference (Li et al., CCS 2024, section 3.2): which user's records are in the batch?

The challenger draws m users, chooses one of them, and sends the gradient of a batch of this user's
records. The adversary holds a batch of *other* records of each of the m users and infers the user
of the gradient. The model trains on the private users; the adversary learns the likeness of two
batches of one user from shadow users, who are disjoint from the private ones.

Each trial draws its batches anew, as in the paper: one of each candidate user. The observed batch
of the true user shares no record with this user's candidate batch. The paper does not state whether
its two batches share records; a shared one would reveal the user.

The paper draws the m candidates from all private users; so does leakgauge if users are few, or with
``draw: iid``. Otherwise users are dealt into disjoint blocks of m or more, and the m users of a
trial belong to one block (``leakgauge.inference.games.blocks``): each single trial still has m
random users, and trials of different blocks are independent. Without blocks any two trials may
share users, and intervals come from leaving out one user at a time
(``leakgauge.results.intervals``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.games.blocks import (
    BATCHES_IN_A_BLOCK,
    ENOUGH_BLOCKS,
    MAX_BLOCKS,
    MIN_BLOCKS,
)
from leakgauge.inference.games.games import BatchGame
from leakgauge.inference.games.trials import CandidateBatches, Trials
from leakgauge.inference.words import BLOCKS, IID
from leakgauge.results.statistics import Ints

USER = "user"
"""Name of the adversary's secret: the shadow user."""

BATCHES_OF_A_USER = 2
"""Number of batches of records that a user needs (section 5.1.4): one observed, one held."""

SPARE_USERS = 2
"""Additional users besides the m candidates, so that any user can be left out."""


@dataclass(frozen=True, eq=False)
class UserInference:
    """The game of user inference: a batch belongs to one of m users.

    Attributes:
        pool: the private records.
        values: m, the number of candidate users of a batch.
        batch_size: B, the records of a batch.
        block: the block ``[len(pool)]`` of each record; all 0 if users are few.
        records: the records ``[h]`` of each user, numbered from 0.
        draw: ``"blocks"``, or ``"iid"`` for candidates from all users, however many.
    """

    pool: Dataset
    values: int
    batch_size: int
    block: Ints
    records: tuple[Ints, ...]
    draw: str = BLOCKS

    name: ClassVar[str] = "user"

    @classmethod
    def deal(
        cls,
        pool: Dataset,
        *,
        batch_size: int,
        candidates: int = 5,
        max_blocks: int = MAX_BLOCKS,
        draw: str = BLOCKS,
        rng: np.random.Generator,
    ) -> "UserInference":
        """Return a game: deal the users into blocks.

        Args:
            pool: the private records, with their users; each user has 2 B or more.
            batch_size: B, the records of a batch.
            candidates: m, the number of candidate users; 5 in the paper.
            max_blocks: the largest number of blocks.
            draw: ``"iid"`` for one block, as in the paper.
            rng: the generator of the deal.

        Raises:
            InputError: the data do not name users, a user has too few records, or users are too
                few.
        """
        require_count(batch_size, "batch size")
        require_count(candidates, "number of candidates")
        require(candidates >= 2, "1 candidate leaves nothing to guess; expected 2 or more")
        users = users_of(pool.users)
        records = records_of(users.cpu().numpy())
        check_users([len(rows) for rows in records], batch_size=batch_size, candidates=candidates)
        count = 1 if draw == IID else _blocks(len(records), candidates, max_blocks)
        block = np.zeros(len(pool), dtype=np.int64)
        for place, user in enumerate(rng.permutation(len(records)).tolist()):
            block[records[user]] = place % count
        return cls(pool, candidates, batch_size, block, tuple(records), draw)

    @property
    def prior(self) -> tuple[float, ...]:
        """Uniform distribution ``[m]``: the secret is a place in a random order."""
        return tuple([1 / self.values] * self.values)

    @property
    def value_names(self) -> tuple[str, ...]:
        """The places ``[m]`` in words."""
        return tuple(f"candidate {place}" for place in range(1, self.values + 1))

    @property
    def notes(self) -> tuple[str, ...]:
        """A note if users are too few for blocks."""
        if not self._shares_users or self.draw == IID:
            return ()
        return (
            f"{len(self.records)} private users are fewer than the "
            f"{MIN_BLOCKS * self.values} that disjoint groups need: each trial of user inference "
            f"draws its {self.values} candidates from all of them, as in the paper; the intervals "
            "leave out one user after the other, and are rather too wide than too narrow",
        )

    @property
    def _shares_users(self) -> bool:
        """Whether any two trials may have the same users."""
        return int(self.block.max()) == 0

    def draw_trials(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Return n trials, each with the true user among m users of one block."""
        home = np.array([self.block[rows[0]] for rows in self.records])
        count = int(self.block.max()) + 1
        members = [np.flatnonzero(home == number) for number in range(count)]
        block = np.arange(n) % count
        index = np.stack([rng.permutation(members[one])[: self.values] for one in block])
        return self._draw(rng.integers(self.values, size=n), index, block, rng)

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Return the same trials with new batches and candidates of the same users."""
        assert trials.candidates is not None
        whose = np.empty(len(self.pool), dtype=np.int64)
        for user, rows in enumerate(self.records):
            whose[rows] = user
        first = trials.candidates.rows[trials.candidates.index, 0]
        index = whose[first.cpu().numpy()]
        return self._draw(trials.secret.cpu().numpy(), index, trials.block.cpu().numpy(), rng)

    def known_to_defender(self, trials: Trials) -> None:
        """Return None: a defense that learns on shadow users does not know private users."""

    def shadow(
        self, task: Task, params: Params, data: Dataset, *, max_bytes: int, **seeds: Any
    ) -> Shadow:
        """Return the adversary's shadow with the shadow user, numbered from 0, as the secret.

        The arguments are those of ``BatchGame.shadow``.
        """
        assert data.users is not None
        numbers, code = torch.unique(data.users, return_inverse=True)
        data = replace(data, secrets={USER: code})
        return Shadow(task, params, data, USER, len(numbers), self.batch_size, max_bytes, **seeds)

    def _draw(self, secret: Ints, index: Ints, block: Ints, rng: np.random.Generator) -> Trials:
        """Return trials with the places of the true users ``[n]`` among the users ``[n, m]``."""
        batch, true = self.batch_size, index[np.arange(len(secret)), secret]
        both = np.stack([self._batch(one, 2 * batch, rng) for one in true.tolist()])
        held = np.stack([self._batch(one, batch, rng) for one in index.ravel().tolist()])
        held = held.reshape(*index.shape, batch)
        held[np.arange(len(secret)), secret] = both[:, batch:]
        arrays = secret, both[:, :batch], block, held.reshape(-1, batch), index
        device = self.pool.y.device
        drawn = [torch.from_numpy(np.ascontiguousarray(one)).to(device) for one in arrays]
        place = torch.arange(index.size, device=device).reshape(index.shape)
        candidates = CandidateBatches(self.pool, drawn[3], place)
        users = drawn[4] if self._shares_users else None
        return Trials(drawn[0], drawn[1], drawn[2], self.pool, candidates, users)

    def _batch(self, user: int, size: int, rng: np.random.Generator) -> Ints:
        """Return different records ``[size]`` of a user."""
        return rng.choice(self.records[user], size=size, replace=False)


Game = BatchGame | UserInference
"""Any of the games."""


def users_of(users: Tensor | None) -> Tensor:
    """Return the user ``[n]`` of each record.

    Raises:
        InputError: the data do not name users.
    """
    require(
        users is not None,
        "user inference needs the user of each record; name a column: --group COL, or "
        "users= in a Dataset",
    )
    assert users is not None
    return users


def check_users(counts: Sequence[int], *, batch_size: int, candidates: int) -> None:
    """Refuse private users with too few records, or too few of them.

    Args:
        counts: number of records of each user.
        batch_size: B, records per batch.
        candidates: m, number of candidate users.

    Raises:
        InputError: a user has too few records, or users are too few.
    """
    need = BATCHES_OF_A_USER * batch_size
    lacking = sum(count < need for count in counts)
    require(
        lacking == 0,
        f"{lacking} of {len(counts)} private users have fewer than {need} records (two batches); "
        "leave them out before the split, as split_users does with least=",
    )
    users = max(MIN_BLOCKS, candidates + SPARE_USERS)
    require(
        len(counts) >= users,
        f"user inference with {candidates} candidates needs {users} private users with {need} "
        f"records (two batches) or more, there are {len(counts)}; lower --batch-size, now "
        f"{batch_size}, or --candidates, or bring more users",
    )


def default_of_users(default: int, fitting: int) -> str:
    """Return the note that a smaller batch replaces the default one."""
    return (
        f"the default batch of {default} records leaves too few users, who each need two disjoint "
        f"batches; batches of {fitting} are used. Another size: --batch-size"
    )


def _blocks(users: int, candidates: int, most: int) -> int:
    """Return the number of blocks of m or more users; 1 if users are too few."""
    if users < MIN_BLOCKS * candidates:
        return 1
    roomy = users // (BATCHES_IN_A_BLOCK * candidates)
    return min(most, max(roomy, min(ENOUGH_BLOCKS, users // candidates)))


def records_of(user: Ints) -> list[Ints]:
    """Return the records of each user, from the user ``[n]`` of each record.

    >>> [rows.tolist() for rows in records_of(np.array([7, 3, 7]))]
    [[1], [0, 2]]
    """
    cuts = np.unique(np.sort(user), return_index=True)[1][1:]
    return np.split(np.argsort(user, kind="stable"), cuts)


def split_in_half(rows: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return a random observed half of records and the candidate half, which is not larger."""
    mixed = rng.permutation(rows)
    cut = (len(mixed) + 1) // 2
    return mixed[:cut], mixed[cut:]
