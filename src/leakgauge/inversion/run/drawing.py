"""Draws the records that are attacked, and deals them to the updates of a client."""

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import InputError, require
from leakgauge.inversion.words import DISTINCT, FIRST, RANDOM

RowNumbers = NDArray[np.int64]


def draw_rows(
    labels: RowNumbers,
    count: int,
    size: int,
    *,
    how: str | None,
    first: int,
    rng: np.random.Generator,
) -> tuple[RowNumbers, str]:
    """Return the rows of the records to attack, and how they were drawn.

    Consecutive ``size`` rows are one update.

    Args:
        labels: codes of all records ``[N]``; with numbers in their place nothing is distinct.
        count: number of records to attack, a multiple of ``size``.
        size: number of records in an update.
        how: ``"distinct"`` (no label twice in an update, as in the paper), ``"random"`` or
            ``"first"``; None takes ``"distinct"`` where the labels allow it, else ``"random"``.
        first: with ``"first"``, the first row.
        rng: source of random numbers.

    Raises:
        InputError: there are too few records, or too few labels.

    References:
        Xu et al., AGIC, SRDS 2022, section V-A: batches are selected at random, and a mini-batch
        has no label twice.

    >>> labels, rng = np.array([7, 7, 7, 8, 9]), np.random.default_rng(0)
    >>> rows, how = draw_rows(labels, 4, 2, how=None, first=0, rng=rng)
    >>> how, [len(set(pair)) for pair in labels[rows].reshape(2, 2).tolist()]
    ('distinct', [2, 2])
    """
    total, begin = len(labels), first if how == FIRST else 0
    require(
        size <= total,
        f"an update has {size} records (--batch-size times --local-steps times --clients), but "
        f"there are {total}; lower one of these",
    )
    require(
        begin + count <= total,
        f"--images asks for records {begin} to {begin + count - 1}, but there are {total}; lower "
        "--images"
        if how == FIRST
        else f"--images asks for {count} records, but there are {total}; lower --images",
    )
    if how == FIRST:
        return np.arange(begin, begin + count), FIRST
    order = rng.permutation(total)
    if how == RANDOM or not np.issubdtype(labels.dtype, np.integer):
        return order[:count], RANDOM
    rows = _no_label_too_often(order, labels, count // size)[:count]
    if len(rows) == count:
        return rows[deal_distinct(labels[rows], size, rng)], DISTINCT
    if how is None:
        return order[:count], RANDOM
    raise InputError(
        f"--draw {DISTINCT} takes no label twice in an update of {size} records, which allows "
        f"{len(rows)} of these data's records, not {count}; lower --images or --batch-size, or "
        f"choose --draw {RANDOM}"
    )


def deal_distinct(labels: RowNumbers, size: int, rng: np.random.Generator) -> RowNumbers:
    """Return an order of n records in which no update, ``size`` in a row, repeats a label.

    Each class in turn goes to the updates with fewest records so far, ties at random. So updates
    never differ by more than one record, and all of them are full at the end.

    Args:
        labels: labels of the records ``[n]``; n is a multiple of ``size``.
        size: number of records in an update.
        rng: source of random numbers.

    Raises:
        InputError: a class has more records than there are updates.

    >>> order = deal_distinct(np.array([5, 5, 6, 6]), 2, np.random.default_rng(0))
    >>> sorted(np.array([5, 5, 6, 6])[order][:2].tolist())
    [5, 6]
    """
    updates = len(labels) // size
    dealt: list[list[int]] = [[] for _ in range(updates)]
    for label in rng.permutation(np.unique(labels)):
        records = rng.permutation(np.flatnonzero(labels == label))
        require(
            len(records) <= updates,
            f"{len(records)} records have one label; {updates} updates without a repeated label "
            f"hold at most {updates} of them",
        )
        filled = np.array([len(one) for one in dealt]) + rng.random(updates)
        for update, record in zip(filled.argsort(), records, strict=False):
            dealt[update].append(int(record))
    return np.array([record for one in dealt for record in rng.permutation(one)], dtype=np.int64)


def _no_label_too_often(order: RowNumbers, labels: RowNumbers, most: int) -> RowNumbers:
    """Return the first rows in ``order``, at most ``most`` of each label."""
    seen: dict[int, int] = {}
    kept = []
    for row in order.tolist():
        label = int(labels[row])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= most:
            kept.append(row)
    return np.array(kept, dtype=np.int64)
