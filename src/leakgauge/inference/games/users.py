"""User inference (Li et al., CCS 2024, section 3.2): whose records are in the batch?

The challenger draws m users, chooses one of them, and sends the gradient of a batch of this user's
records. The adversary holds a batch of *other* records of each of the m users and says which user
the gradient comes from. The model trains on the private users; the adversary learns from its own
shadow users, who are not among them, what two batches of one user have in common.

A random split parts each user's records into an observed and a candidate half, so that no record
is in both. Whole users are dealt into disjoint blocks of m or more, and the m users of a trial
belong to one block: see ``leakgauge.inference.games.blocks``.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
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
from leakgauge.inference.games.candidates import CandidateBatches
from leakgauge.inference.games.trials import Trials

Ints = NDArray[np.int64]

USER = "user"
"""The name of the adversary's secret: the shadow user."""

LEFT_OUT = -1
"""The block number of records whose user has too few records."""


@dataclass(frozen=True, eq=False)
class UserInference:
    """The game of user inference: a batch belongs to one of m users.

    Attributes:
        pool: the private records.
        values: m, the number of candidate users of a batch.
        batch_size: B, the records of a batch.
        block: the block ``[len(pool)]`` of each record; -1 where its user is left out.
        observed: for each user in the game, the records ``[h]`` that clients draw batches from.
        held: for each user in the game, the records that the adversary draws candidates from; no
            record is also in ``observed``.
        left_out: the number of users with fewer than 2 B records, who are not in the game.
    """

    pool: Dataset
    values: int
    batch_size: int
    block: Ints
    observed: tuple[Ints, ...]
    held: tuple[Ints, ...]
    left_out: int

    name: ClassVar[str] = "user"

    @classmethod
    def deal(
        cls,
        pool: Dataset,
        *,
        batch_size: int,
        candidates: int = 2,
        max_blocks: int = MAX_BLOCKS,
        rng: np.random.Generator,
    ) -> "UserInference":
        """Return a game: split each user's records and deal the users into blocks.

        Args:
            pool: the private records, with their users.
            batch_size: B, the records of a batch.
            candidates: m, the number of candidate users; the paper does not state it.
            max_blocks: the largest number of blocks.
            rng: the generator of the split and the deal.

        Raises:
            InputError: the data name no users, or too few users have enough records.
        """
        require_count(batch_size, "batch size")
        require_count(candidates, "number of candidates")
        require(candidates >= 2, "1 candidate leaves nothing to guess; expected 2 or more")
        users = users_of(pool.users)
        able = able_users(users, batch_size=batch_size, candidates=candidates)
        halves = [part(rows, rng) for rows in able]
        roomy = len(able) // (BATCHES_IN_A_BLOCK * candidates)
        count = min(max_blocks, max(roomy, min(ENOUGH_BLOCKS, len(able) // candidates)))
        block = np.full(len(pool), LEFT_OUT, dtype=np.int64)
        for place, user in enumerate(rng.permutation(len(able)).tolist()):
            block[able[user]] = place % count
        observed, held = zip(*halves, strict=True)
        left_out = len(torch.unique(users)) - len(able)
        return cls(pool, candidates, batch_size, block, observed, held, left_out)

    @property
    def prior(self) -> tuple[float, ...]:
        """The uniform distribution ``[m]``: the secret is a place in a random order."""
        return tuple([1 / self.values] * self.values)

    @property
    def value_names(self) -> tuple[str, ...]:
        """The places ``[m]`` in words."""
        return tuple(f"candidate {place}" for place in range(1, self.values + 1))

    @property
    def notes(self) -> tuple[str, ...]:
        """Changes to the data that users should know."""
        if self.left_out == 0:
            return ()
        total = self.left_out + len(self.observed)
        return (
            f"{self.left_out} of {total} private users have fewer than {2 * self.batch_size} "
            "records (two batches): they are trained on, but do not play in user inference",
        )

    def play(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Return n trials: m users of a block each, one of them the true one, and their batches.

        A user's candidate batch is the same in all trials.
        """
        home = np.array([self.block[rows[0]] for rows in self.observed])
        count = int(self.block.max()) + 1
        members = [np.flatnonzero(home == number) for number in range(count)]
        block = np.arange(n) % count
        index = np.stack([rng.permutation(members[one])[: self.values] for one in block])
        return self._draw(rng.integers(self.values, size=n), index, block, rng)

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Return trials with fresh batches and candidates of the same users."""
        assert trials.candidates is not None
        index = trials.candidates.index.cpu().numpy()
        return self._draw(trials.secret.cpu().numpy(), index, trials.block.cpu().numpy(), rng)

    def known_to_defender(self, trials: Trials) -> None:
        """Return None: a defense that learns on shadow users knows no private user."""

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
        """Return the adversary's records; their secret is the shadow user, numbered from 0."""
        assert data.users is not None
        numbers, code = torch.unique(data.users, return_inverse=True)
        return Shadow(
            task,
            params,
            replace(data, secrets={USER: code}),
            USER,
            len(numbers),
            self.batch_size,
            max_bytes,
            noise_seed=noise_seed,
            held_out_seed=held_out_seed,
        )

    def _draw(self, secret: Ints, index: Ints, block: Ints, rng: np.random.Generator) -> Trials:
        whose = index[np.arange(len(secret)), secret]
        held = np.stack([self._batch(rows, rng) for rows in self.held])
        rows = np.stack([self._batch(self.observed[one], rng) for one in whose])
        device = self.pool.y.device
        drawn = [torch.from_numpy(a).to(device) for a in (secret, rows, block, held, index)]
        candidates = CandidateBatches(self.pool, drawn[3], drawn[4])
        return Trials(drawn[0], drawn[1], drawn[2], self.pool, candidates)

    def _batch(self, rows: Ints, rng: np.random.Generator) -> Ints:
        return rng.choice(rows, size=self.batch_size, replace=False)


def users_of(users: Tensor | None) -> Tensor:
    """Return the user ``[n]`` of each record.

    Raises:
        InputError: the data name no users.
    """
    require(
        users is not None,
        "user inference needs the user of each record; name a column: --group COL, or "
        "users= in a Dataset",
    )
    assert users is not None
    return users


def able_users(users: Tensor, *, batch_size: int, candidates: int) -> list[Ints]:
    """Return the records of each private user who has two batches of them.

    Args:
        users: the user ``[n]`` of each private record.
        batch_size: B.
        candidates: m.

    Raises:
        InputError: too few users have enough records.
    """
    records = records_of(users.cpu().numpy())
    able = [rows for rows in records if len(rows) >= 2 * batch_size]
    need = MIN_BLOCKS * candidates
    require(
        len(able) >= need,
        f"user inference with {candidates} candidates needs {need} private users with "
        f"{2 * batch_size} records (two batches) or more, {len(able)} of {len(records)} have "
        f"them; lower --batch-size, now {batch_size}, or --candidates, or bring more users",
    )
    return able


def records_of(user: Ints) -> list[Ints]:
    """Return the records of each user, from the user ``[n]`` of each record.

    >>> [rows.tolist() for rows in records_of(np.array([7, 3, 7]))]
    [[1], [0, 2]]
    """
    cuts = np.unique(np.sort(user), return_index=True)[1][1:]
    return np.split(np.argsort(user, kind="stable"), cuts)


def part(rows: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return a random split of records: the observed half, and the candidate half (not larger)."""
    mixed = rng.permutation(rows)
    cut = (len(mixed) + 1) // 2
    return mixed[:cut], mixed[cut:]
