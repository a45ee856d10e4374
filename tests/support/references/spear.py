"""SPEAR's search, literally and slowly: null vectors of random rows of a gradient's column space.

Dimitrov et al., SPEAR: Exact Gradient Inversion of Batches in Federated Learning, NeurIPS 2024: the
gradient ``A = L R`` has rank b. A record leaves about half of the units off, and its column of Q is
orthogonal to these rows of L. So b - 1 random rows determine it if the record leaves all of them
off, which happens about once in ``2 ** (b - 1)`` draws. A direction is kept if ``L q`` has enough
zeros. The sparsest independent directions are tried, until all records leave off exactly the units
where their directions are zero.
"""

import torch
from torch import Generator, Tensor

ZERO = 1e-9
"""Largest entry of a direction that counts as zero, in float64. Small gradients are above it."""


def spear(
    gradient: Tensor,
    weight: Tensor,
    bias: Tensor,
    count: int,
    generator: Generator,
    *,
    zeros: float = 0.3,
    most: int = 1_000_000,
) -> tuple[Tensor, int]:
    """Return the records ``[b, D]`` behind a gradient ``[H, D + 1]``, and the number of draws.

    Args:
        gradient: gradients of weight and bias together, float64; the bias is the last column.
        weight: the layer's weight ``[H, D]``.
        bias: its bias ``[H]``.
        count: b, the number of records.
        generator: source of the rows that are drawn.
        zeros: smallest share of zeros of a direction that is kept.
        most: largest number of draws; without all records by then, none are returned.
    """
    left, singular, right = torch.linalg.svd(gradient, full_matrices=False)
    left, right = left[:, :count], singular[:count, None] * right[:count]
    kept: list[Tensor] = []
    for draw in range(1, most + 1):
        rows = torch.randperm(len(left), generator=generator)[: count - 1]
        q = torch.linalg.svd(left[rows], full_matrices=True)[2][-1]
        if float(((left @ q).abs() < ZERO).double().mean()) < zeros:
            continue
        if any(abs(float(q @ other)) >= 1 - 1e-6 for other in kept):
            continue
        kept.append(q)
        chosen = _sparsest(left, kept, count)
        if chosen is None:
            continue
        rebuilt = torch.linalg.solve(chosen, right)
        x = rebuilt[:, :-1] / rebuilt[:, -1:]
        is_off = x @ weight.T + bias < 0
        if bool((is_off == ((left @ chosen).abs() < ZERO).T).all()):
            return x, draw
    return left.new_zeros(0, right.shape[1] - 1), most


def _sparsest(left: Tensor, kept: list[Tensor], count: int) -> Tensor | None:
    """Return b independent directions with the most zeros, ``[b, b]``; None without so many."""
    order = sorted(kept, key=lambda q: -int(((left @ q).abs() < ZERO).sum()))
    chosen: list[Tensor] = []
    for q in order:
        more = torch.stack([*chosen, q], dim=1)
        if float(torch.linalg.svdvals(more)[-1]) > 1e-6:
            chosen.append(q)
        if len(chosen) == count:
            return torch.stack(chosen, dim=1)
    return None
