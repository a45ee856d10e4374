"""Cells of encoded rows: a relaxation for a search, and the comparison of two cells."""

import torch
from torch import Tensor

from leakgauge.core.types import Column, Schema

TOLERANCE = 0.319
"""TabLeak's tolerance of a right number, in standard deviations of its column."""

_MISSING = 1e9
"""Stands for a missing number: no standardised number comes near it."""


def relaxed(z: Tensor, schema: Schema, low: Tensor, high: Tensor) -> Tensor:
    """Return rows that a table could nearly have, from variables without bounds.

    The positions of a category are a softmax. A number is a sigmoid between the lowest and highest
    value that it can have, and the mark of a missing number one between 0 and 1.

    Args:
        z: variables ``[..., D]``.
        schema: the columns.
        low: lowest encoded values, broadcast to ``[D]``.
        high: highest encoded values, broadcast to ``[D]``.

    >>> sex = Column("sex", "category", 1, 3, ("f", "m"))
    >>> schema = Schema((Column("age", "number", 0, 1), sex), "y", (), {})
    >>> low, high = torch.tensor([-2.0, 0, 0]), torch.tensor([4.0, 1, 1])
    >>> relaxed(torch.zeros(1, 3), schema, low, high)
    tensor([[1.0000, 0.5000, 0.5000]])
    """
    share = z.sigmoid()
    numbers = low.to(z) + (high - low).to(z) * share
    parts = []
    for one in schema.columns:
        if one.kind == "category":
            parts.append(z[..., one.start : one.stop].softmax(-1))
        else:
            parts.append(numbers[..., one.start : one.start + 1])
            parts.append(share[..., one.start + 1 : one.stop])
    return torch.cat(parts, -1)


def hardened(x: Tensor, schema: Schema) -> Tensor:
    """Return rows ``[..., D]`` with the likeliest category of each column, and whole marks.

    A missing number is 0, as the encoding writes it.

    >>> sex = Column("sex", "category", 0, 2, ("f", "m"))
    >>> hardened(torch.tensor([[0.4, 0.6]]), Schema((sex,), "y", (), {}))
    tensor([[0., 1.]])
    """
    parts = []
    for one in schema.columns:
        block = x[..., one.start : one.stop]
        if one.kind == "category":
            hot = torch.nn.functional.one_hot(block.argmax(-1), one.stop - one.start)
            parts.append(hot.to(x))
        elif one.missing:
            gone = (block[..., 1:] > 0.5).to(x)
            parts += [block[..., :1] * (1 - gone), gone]
        else:
            parts.append(block)
    return torch.cat(parts, -1)


def same_cells(
    ours: Tensor, theirs: Tensor, schema: Schema, *, tolerance: float = TOLERANCE
) -> Tensor:
    """Return whether the cells of rows agree, bool ``[..., C]`` for the C columns of the table.

    Args:
        ours: encoded rows ``[..., D]``.
        theirs: encoded rows, broadcast to ``ours``.
        schema: the columns.
        tolerance: largest difference of two equal numbers, in standard deviations of the encoding.

    >>> age = Schema((Column("age", "number", 0, 1),), "y", (), {})
    >>> same_cells(torch.tensor([[0.0], [1.0]]), torch.tensor([[0.3], [0.3]]), age).tolist()
    [[True], [False]]
    """
    least = [0.5 if one.kind == "category" else tolerance for one in schema.columns]
    gaps = (_values(ours, schema) - _values(theirs, schema)).abs()
    return gaps <= torch.tensor(least, dtype=gaps.dtype, device=gaps.device)


def _values(x: Tensor, schema: Schema) -> Tensor:
    """Return one number for each cell ``[..., C]``: a category's place, or a number."""
    return torch.stack([_value(x[..., c.start : c.stop], c) for c in schema.columns], -1)


def _value(block: Tensor, column: Column) -> Tensor:
    block = block.detach().double()
    if column.kind == "category":
        known = block.amax(-1) > 0  # The encoding gives zeros for an unknown category.
        return torch.where(known, block.argmax(-1), len(column.categories)).double()
    if column.missing:
        return torch.where(block[..., 1] > 0.5, _MISSING, block[..., 0])
    return block[..., 0]
