"""Sparse directions of a gradient's column space, for any records before a ReLU.

The column of a record is a vector ``L q`` with many zeros. Reweighted least squares looks for small
sums of absolute values on the unit sphere, from random starts; the zeros that a start ends with
then determine its direction to rounding.
"""

import math
from collections.abc import Iterator

import torch
from torch import Generator, Tensor

STARTS = 64
"""Starts that are improved at once."""

ITERATIONS = 40
SMALL = 0.1
"""Share of the entries that count as small from the beginning."""

ZERO = 1e-4
"""Largest entry of a direction that counts as zero without noise; rows of L have norm 1."""

SPANNED = 1e-3
"""Smallest relative singular value of a direction that known ones span."""

SAME = 1e-6
"""Two directions whose cosine is so near to 1 are one."""


def directions(left: Tensor, generator: Generator, *, zero: float = ZERO) -> Iterator[list[Tensor]]:
    """Yield lists of new directions q ``[r]`` without end, each the outcome of ``STARTS`` starts.

    Args:
        left: orthonormal columns L ``[H, r]``, float64.
        generator: source of the starts.
        zero: largest entry of a direction that counts as zero; rows have norm 1.
    """
    length = left.norm(dim=1, keepdim=True)
    rows = left[length[:, 0] > 1e-9 * length.max()]
    rows = rows / rows.norm(dim=1, keepdim=True)
    rank = left.shape[1]
    known: list[Tensor] = []
    while True:
        starts = torch.randn(STARTS, rank, generator=generator, dtype=torch.float64)
        starts = _apart(starts.to(left.device), known)
        found = []
        for one in _sparser(rows, starts / starts.norm(dim=1, keepdim=True)):
            polished = _polished(rows, one, zero)
            if polished is not None and not _among(polished, known):
                known.append(polished)
                found.append(polished)
        yield found


def _apart(starts: Tensor, known: list[Tensor]) -> Tensor:
    """Return starts, half of them orthogonal to the known directions.

    These are nearer to the directions that are missing. A known direction may belong to no record,
    so the others start anywhere.
    """
    if not known:
        return starts
    left, values, _ = torch.linalg.svd(torch.stack(known, dim=1), full_matrices=False)
    basis = left[:, values > SPANNED * values[0]]
    if basis.shape[1] == starts.shape[1]:
        return starts
    half = len(starts) // 2
    apart = starts[:half] - (starts[:half] @ basis) @ basis.T
    return torch.cat([apart, starts[half:]])


def _sparser(rows: Tensor, q: Tensor) -> Tensor:
    """Return starts ``[s, r]`` after reweighted least squares with inverse iteration."""
    eye = 1e-12 * torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    products = (rows[:, :, None] * rows[:, None, :]).flatten(1)
    for turn in range(ITERATIONS):
        entries = (q @ rows.T).abs()
        soft = _quantile(entries, SMALL) / 2 + 1e-10
        weight = (entries.square() + soft.square()).rsqrt()
        weight = weight / weight.sum(dim=1, keepdim=True)
        square = (weight @ products).view(-1, *eye.shape)
        new = torch.linalg.solve(square + eye, q[:, :, None])[:, :, 0]
        new = new / new.norm(dim=1, keepdim=True)
        still = bool(((new * q).sum(dim=1).abs() > 1 - 1e-10).all())
        q = new
        if still and turn > 3:
            break
    return q


def _quantile(x: Tensor, share: float) -> Tensor:
    """Return the quantile of each row ``[n, 1]``; ``torch.quantile`` sorts all of it.

    >>> _quantile(torch.tensor([[4.0, 1.0, 2.0, 3.0]]), 0.5)
    tensor([[2.5000]])
    """
    place = share * (x.shape[1] - 1)
    lower, upper = (x.kthvalue(k, dim=1, keepdim=True).values for k in _neighbours(place))
    return torch.lerp(lower, upper, place % 1)


def _neighbours(place: float) -> tuple[int, int]:
    """Return the ranks, from 1, at and above a place that counts from 0."""
    return math.floor(place) + 1, math.ceil(place) + 1


def _polished(rows: Tensor, q: Tensor, zero: float) -> Tensor | None:
    """Return the direction that the zeros of a start determine; None where these are too few."""
    zeros = rows[(rows @ q).abs() < zero]
    if len(zeros) < rows.shape[1] + 8:
        return None
    direction: Tensor = torch.linalg.svd(zeros, full_matrices=False)[2][-1]
    return direction


def _among(q: Tensor, known: list[Tensor]) -> bool:
    return bool(known) and bool((torch.stack(known) @ q).abs().max() > 1 - SAME)
