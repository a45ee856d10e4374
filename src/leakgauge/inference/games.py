"""The games of Li et al., CCS 2024, section 3.2: a secret, and how a batch depends on it.

The challenger draws a secret a from the prior, then a private batch (x, y) ~ p(x, y | a): B private
records whose secret is a. The two games here differ in one thing. In *attribute inference* the
secret is one of the features, so the model is trained on it; in *property inference* it is not.

**Blocks.** Batches from a finite pool share records, so trials are not independent, and an
interval that takes them for independent is too narrow. The pool is therefore dealt at random into
disjoint blocks, each with at least B records of every secret value (4 B where there are enough),
and every trial draws its batch without replacement from one block. Taken alone, each batch is
still a uniformly random subset of the records with its secret, as in the paper; but trials of
different blocks share no record, and the scores resample blocks.

Where records belong to persons, whole persons are dealt, so that no person stands in two blocks.
A batch then holds fewer different persons than one that is drawn from all records would.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.checks import InputError, require, require_positive
from leakgauge.types import Dataset, Schema

MIN_BLOCKS = 8
"""Fewer independent groups of records than this carry no interval worth printing."""

ENOUGH_BLOCKS = 50
"""From here on, larger blocks are better than more: batches of one block differ more then."""

MAX_BLOCKS = 500
BATCHES_IN_A_BLOCK = 4


@dataclass(frozen=True, eq=False)
class Trials:
    """Rounds of a game that were played.

    Attributes:
        secret: codes ``[n]``.
        rows: ``[n, B]`` indices into ``pool``.
        block: ``[n]``; trials of different blocks share no record and no person.
        pool: the private records.
    """

    secret: Tensor
    rows: Tensor
    block: Tensor
    pool: Dataset

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


@dataclass(frozen=True, eq=False)
class BatchGame:
    """A batch whose records share one secret.

    Attributes:
        pool: the private records.
        secret: the name of the secret.
        values: m, how many values it has.
        batch_size: B.
        prior: P(a) ``[m]``.
        block: the block ``[len(pool)]`` of each record.
    """

    pool: Dataset
    secret: str
    values: int
    batch_size: int
    prior: tuple[float, ...]
    block: NDArray[np.int64]

    name: ClassVar[str]

    @classmethod
    def deal(
        cls,
        pool: Dataset,
        secret: str,
        *,
        batch_size: int,
        values: int,
        prior: tuple[float, ...] | None = None,
        max_blocks: int = MAX_BLOCKS,
        rng: np.random.Generator,
    ) -> "BatchGame":
        """Set up the game on private records.

        Args:
            pool: the private records; their ``secrets[secret]`` are codes below ``values``.
            secret: the name of the secret.
            batch_size: B, records a batch.
            values: m, the number of values of the secret.
            prior: P(a) ``[m]``; uniform if None.
            max_blocks: the most blocks to deal.
            rng: deals the records.

        Raises:
            InputError: the secret's place does not fit the game, or a value has too few records.
        """
        require_positive(batch_size, "batch size")
        cls.check_schema(pool.schema, secret)
        codes = pool.secrets[secret].cpu().numpy()
        users = None if pool.users is None else pool.users.cpu().numpy()
        names = pool.schema.secrets[secret] if pool.schema else [str(v) for v in range(values)]
        block = deal_blocks(
            codes, users, values, batch_size, max_blocks=max_blocks, names=names, rng=rng
        )
        uniform = tuple([1 / values] * values)
        return cls(pool, secret, values, batch_size, prior or uniform, block)

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """Refuse data that this game is not about."""

    def play(self, n: int, *, rng: np.random.Generator) -> Trials:
        """Draw n secrets from the prior and a batch for each."""
        secret = rng.choice(self.values, size=n, p=self.prior)
        return self._draw(secret, rng)

    def redraw(self, trials: Trials, *, rng: np.random.Generator) -> Trials:
        """Fresh batches for the same secrets: another round of the same trials."""
        return self._draw(trials.secret.cpu().numpy(), rng, trials.block.cpu().numpy())

    def _draw(
        self,
        secret: NDArray[np.int64],
        rng: np.random.Generator,
        block: NDArray[np.int64] | None = None,
    ) -> Trials:
        count = int(self.block.max()) + 1
        block = np.arange(len(secret)) % count if block is None else block
        codes = self.pool.secrets[self.secret].cpu().numpy()
        members = _members(codes, self.block, self.values, count)
        rows = np.stack(
            [
                rng.choice(members[b][a], size=self.batch_size, replace=False)
                for a, b in zip(secret, block, strict=True)
            ]
        )
        device = self.pool.y.device
        drawn = [torch.from_numpy(array).to(device) for array in (secret, rows, block)]
        return Trials(drawn[0], drawn[1], drawn[2], self.pool)


@dataclass(frozen=True, eq=False)
class AttributeInference(BatchGame):
    """The secret is one of the features (section 3.2, attribute inference)."""

    name: ClassVar[str] = "attribute"

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """The secret must be among the features."""
        if schema is not None and secret not in {column.name for column in schema.columns}:
            raise InputError(
                f"attribute inference asks for a feature, but {secret!r} is not among the encoded "
                "features; keep it when encoding, or ask for the property"
            )


@dataclass(frozen=True, eq=False)
class PropertyInference(BatchGame):
    """The secret is not among the features (section 3.2, property inference)."""

    name: ClassVar[str] = "property"

    @classmethod
    def check_schema(cls, schema: Schema | None, secret: str) -> None:
        """The secret must not be among the features."""
        if schema is not None and secret in {column.name for column in schema.columns}:
            raise InputError(
                f"property inference asks for what is no feature, but {secret!r} is one; remove "
                "it when encoding, or ask for the attribute"
            )


GAMES: dict[str, type[BatchGame]] = {
    game.name: game for game in (PropertyInference, AttributeInference)
}


def deal_blocks(
    codes: NDArray[np.int64],
    users: NDArray[np.int64] | None,
    values: int,
    batch_size: int,
    *,
    max_blocks: int = MAX_BLOCKS,
    names: Sequence[str] = (),
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Deal records into as many disjoint blocks as hold a batch of every value.

    Args:
        codes: secret ``[n]``, below ``values``.
        users: person ``[n]`` or None; a person's records stay in one block.
        values: m.
        batch_size: the records that a block needs of each value.
        max_blocks: the most blocks to deal.
        names: of the secret's values, for refusals.
        rng: shuffles.

    Returns:
        The block ``[n]`` of each record, 0 .. G - 1.

    Raises:
        InputError: a value has too few records for ``MIN_BLOCKS`` blocks.
    """
    counts = np.bincount(codes, minlength=values)
    rarest = int(counts.argmin())
    name, fewest = names[rarest] if names else str(rarest), int(counts[rarest])
    require(
        batch_size <= fewest,
        f"batch size is {batch_size}, but only {fewest} private records have the secret value "
        f"{name!r}; lower --batch-size to at most {max(1, fewest // MIN_BLOCKS)}",
    )
    if users is not None:
        persons = min(len(np.unique(users[codes == value])) for value in range(values))
        require(
            persons >= MIN_BLOCKS,
            f"only {persons} private persons have records with some secret value; an interval "
            f"needs at least {MIN_BLOCKS} of each value: bring more persons",
        )
    roomy = fewest // (BATCHES_IN_A_BLOCK * batch_size)
    blocks = min(max_blocks, max(roomy, min(ENOUGH_BLOCKS, fewest // batch_size)))
    while blocks >= MIN_BLOCKS:
        block = _deal(codes, users, blocks, rng)
        held = np.zeros((blocks, values), dtype=np.int64)
        np.add.at(held, (block, codes), 1)
        if held.min() >= batch_size:
            return block
        blocks = min(blocks - 1, int(blocks * 0.9))
    raise InputError(
        f"batch size {batch_size} leaves fewer than {MIN_BLOCKS} disjoint groups of private "
        f"records that hold a batch of each secret value ({name!r} has {fewest} records), too few "
        f"for an interval; lower --batch-size to at most {max(1, fewest // MIN_BLOCKS)}"
    )


def _deal(
    codes: NDArray[np.int64],
    users: NDArray[np.int64] | None,
    blocks: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Deal units (records, or persons with their records) in turn, each secret value apart."""
    units = np.arange(len(codes)) if users is None else np.unique(users, return_inverse=True)[1]
    first = np.unique(units, return_index=True)[1]  # a person is dealt by the first record's value
    order = rng.permutation(len(first))
    order = order[np.argsort(codes[first][order], kind="stable")]
    dealt = np.empty(len(first), dtype=np.int64)
    dealt[order] = np.arange(len(first)) % blocks
    return dealt[units]


def _members(
    codes: NDArray[np.int64], block: NDArray[np.int64], values: int, count: int
) -> list[list[NDArray[np.int64]]]:
    """Rows by block and secret value."""
    order = np.argsort(block * values + codes, kind="stable")
    cuts = np.bincount(block * values + codes, minlength=count * values).cumsum()[:-1]
    flat = np.split(order, cuts)
    return [flat[b * values : (b + 1) * values] for b in range(count)]
