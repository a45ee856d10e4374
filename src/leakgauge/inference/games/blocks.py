"""Disjoint blocks of records, which make trials independent.

Batches from a finite pool share records, so trials are not independent, and an interval that
assumes independence is too narrow. The pool is therefore dealt at random into disjoint blocks, each
with at least B records of every secret value (4 B if there are enough), and every trial draws its
batch without replacement from one block. Taken alone, each batch is still a uniformly random subset
of the records with its secret, as in the paper; but trials of different blocks share no record, and
the scores resample blocks.

If records belong to users, whole users are dealt, so that no user is in two blocks. A batch then
holds fewer different users than one drawn from all records.

Without blocks (``draw: iid``) each record of a batch is an independent draw from all private
records with its value, as in Definition 3.1 of Li et al., CCS 2024. Two trials may then share
records; the intervals leave out one record, or one user, at a time
(``leakgauge.results.overlap``).
"""

from collections.abc import Sequence

import numpy as np

from leakgauge.core.checks import InputError, require
from leakgauge.results.statistics import Ints

MIN_BLOCKS = 8
"""Minimum number of independent blocks of records for an interval."""

MIN_DISJOINT = 4
"""Minimum number of disjoint batches of each value without blocks.

In simulations with as few, 93 % of the 95 % intervals held the truth."""

ENOUGH_BLOCKS = 50
"""Number of blocks above which larger blocks are better than more: their batches differ more."""

MAX_BLOCKS = 500
BATCHES_IN_A_BLOCK = 4


class BatchSizeError(InputError):
    """Raised where the private records hold too few disjoint batches.

    Attributes:
        most: largest batch size that may fit.
    """

    def __init__(self, message: str, most: int) -> None:
        super().__init__(message)
        self.most = most


def default_that_fits(default: int, fitting: int, disjoint: int = MIN_BLOCKS) -> str:
    """Return the note that a smaller batch replaces the default one.

    Args:
        default: the default batch size.
        fitting: the batch size that is used.
        disjoint: number of disjoint batches of each value that the records must hold.
    """
    return (
        f"the default batch of {default} records does not fit the private records, which must hold "
        f"{disjoint} disjoint batches of each secret value; batches of {fitting} are used. "
        "Another size: --batch-size"
    )


def most_blocks(trials: int, values: int) -> int:
    """Return the largest number of blocks that some trials can use: five of each value in each.

    >>> most_blocks(5000, 2), most_blocks(200, 2), most_blocks(20, 2)
    (500, 20, 8)
    """
    return max(MIN_BLOCKS, min(MAX_BLOCKS, trials // (5 * values)))


def deal_blocks(
    codes: Ints,
    users: Ints | None,
    values: int,
    batch_size: int,
    *,
    max_blocks: int = MAX_BLOCKS,
    names: Sequence[str] = (),
    rng: np.random.Generator,
) -> Ints:
    """Return a deal of records into disjoint blocks that each hold a batch of every value.

    Args:
        codes: the secret of each record ``[n]``, below ``values``.
        users: the user of each record ``[n]``, or None; a user's records stay in one block.
        values: m, the number of the secret's values.
        batch_size: the records that a block needs of each value.
        max_blocks: the largest number of blocks.
        names: the secret's values in words, for messages.
        rng: the generator of the deal.

    Returns:
        The block ``[n]`` of each record, 0 .. G - 1.

    Raises:
        BatchSizeError: a value has too few records for ``MIN_BLOCKS`` blocks.
        InputError: too few users have a value.
    """
    counts = np.bincount(codes, minlength=values)
    rarest = int(counts.argmin())
    name, fewest = names[rarest] if names else str(rarest), int(counts[rarest])
    most = max(1, fewest // MIN_BLOCKS)
    if batch_size > fewest:
        raise BatchSizeError(
            f"batch size is {batch_size}, but only {fewest} private records have the secret value "
            f"{name!r}; lower --batch-size to at most {most}",
            most,
        )
    _check_users(codes, users, values)
    roomy = fewest // (BATCHES_IN_A_BLOCK * batch_size)
    blocks = min(max_blocks, max(roomy, min(ENOUGH_BLOCKS, fewest // batch_size)))
    while blocks >= MIN_BLOCKS:
        block = _deal(codes, users, blocks, rng)
        held = np.zeros((blocks, values), dtype=np.int64)
        np.add.at(held, (block, codes), 1)
        if held.min() >= batch_size:
            return block
        blocks = min(blocks - 1, int(blocks * 0.9))
    raise BatchSizeError(
        f"batch size {batch_size} leaves fewer than {MIN_BLOCKS} disjoint groups of private "
        f"records that hold a batch of each secret value ({name!r} has {fewest} records), too few "
        f"for an interval; lower --batch-size to at most {most}",
        most,
    )


def one_block(
    codes: Ints, users: Ints | None, values: int, batch_size: int, *, names: Sequence[str] = ()
) -> Ints:
    """Return the block 0 for each record ``[n]``, after checks that an interval is possible.

    The arguments are those of ``deal_blocks``.

    Raises:
        BatchSizeError: a value has fewer records than ``MIN_DISJOINT`` batches.
        InputError: too few users have a value.
    """
    counts = np.bincount(codes, minlength=values)
    rarest = int(counts.argmin())
    name, fewest = names[rarest] if names else str(rarest), int(counts[rarest])
    most = max(1, fewest // MIN_DISJOINT)
    if batch_size * MIN_DISJOINT > fewest:
        raise BatchSizeError(
            f"batch size {batch_size} is too large for an interval: {fewest} private records have "
            f"the secret value {name!r}, and batches drawn from all of them need "
            f"{MIN_DISJOINT} times the batch size; lower --batch-size to at most {most}",
            most,
        )
    _check_users(codes, users, values)
    return np.zeros(len(codes), dtype=np.int64)


def _check_users(codes: Ints, users: Ints | None, values: int) -> None:
    """Refuse values that too few users have."""
    if users is None:
        return
    fewest = min(len(np.unique(users[codes == value])) for value in range(values))
    require(
        fewest >= MIN_BLOCKS,
        f"only {fewest} private users have records with some secret value; an interval "
        f"needs at least {MIN_BLOCKS} of each value: bring more users",
    )


def _deal(codes: Ints, users: Ints | None, blocks: int, rng: np.random.Generator) -> Ints:
    """Return the block of each record: units (records or users) dealt in turn, value by value."""
    units = np.arange(len(codes)) if users is None else np.unique(users, return_inverse=True)[1]
    # a user is dealt by the value of the first record
    first = np.unique(units, return_index=True)[1]
    order = rng.permutation(len(first))
    order = order[np.argsort(codes[first][order], kind="stable")]
    dealt = np.empty(len(first), dtype=np.int64)
    dealt[order] = np.arange(len(first)) % blocks
    return dealt[units]


def members_of(codes: Ints, block: Ints, values: int, count: int) -> list[list[Ints]]:
    """Return the rows of each block and secret value."""
    order = np.argsort(block * values + codes, kind="stable")
    cuts = np.bincount(block * values + codes, minlength=count * values).cumsum()[:-1]
    flat = np.split(order, cuts)
    return [flat[b * values : (b + 1) * values] for b in range(count)]
