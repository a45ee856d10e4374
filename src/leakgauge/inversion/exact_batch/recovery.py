"""Recovers all records of one batch, and certifies them by their own gradient."""

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.inversion.exact_batch.factors import factors_of
from leakgauge.inversion.exact_batch.layer import ProbedLayer
from leakgauge.inversion.exact_batch.peeling import peeled, with_whole_flags
from leakgauge.inversion.exact_batch.searching import FEWER_IDLE, IDLE, Searcher

CERTIFIED, MOST_CERTIFIED = 100.0, 1e-3
"""Roundings up to which two gradients are equal, and their largest relative difference: types
coarser than float32 show too little for a certificate."""

POLISHING = 4
"""Times that records are computed anew from the gradients at the layer's output."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The records of one batch.

    Attributes:
        x: records ``[k, D]`` that the gradient shows, float64.
        y: their labels ``[k]`` int64; ``peeling.UNKNOWN`` where none fits.
        rank: numerical rank of the layer's gradient, at most the number of records.
        is_noisy: whether the gradient has more than the rank of its records, beyond rounding.
        difference: relative difference of their gradient from the received one; infinite where
            records or labels are missing.
        is_certified: whether the difference is rounding.
    """

    x: Tensor
    y: Tensor
    rank: int
    is_noisy: bool
    difference: float
    is_certified: bool


def recover(
    layer: ProbedLayer,
    grads: Grads,
    count: int,
    *,
    flags: Tensor | None,
    precision: torch.dtype,
    seed: int,
    most: int,
) -> Recovery:
    """Return the records behind one gradient.

    Args:
        layer: the layer whose gradient it is.
        grads: one gradient, leaf ``[*p]``.
        count: number of records of the batch.
        flags: positions of one-hot columns ``[k]``; None where records have none.
        precision: type that the gradient had.
        seed: seed of both searches.
        most: rounds of both searches before it stops without all records.
    """
    weight, bias = (grads[name].double() for name in layer.names)
    gradient = torch.cat([weight, bias[:, None]], dim=1)
    factors = factors_of(gradient, layer.weight, layer.bias, most=count, precision=precision)
    idle = IDLE if factors.rank == count else FEWER_IDLE
    searcher = Searcher(flags, layer.is_behind_relu, seed, idle, most)
    x, y = peeled(layer, searcher, gradient, factors, count, precision)
    if len(x) == factors.rank and bool((y >= 0).all()):
        x = _polished(layer, gradient, x, y, flags, count)
    difference = float("inf")
    if len(x) == count and bool((y >= 0).all()):
        difference = _difference(layer.mean_gradient(x, y), grads)
    limit = min(CERTIFIED * torch.finfo(precision).eps, MOST_CERTIFIED)
    return Recovery(x, y, factors.rank, factors.is_noisy, difference, difference <= limit)


def _polished(
    layer: ProbedLayer,
    gradient: Tensor,
    x: Tensor,
    y: Tensor,
    flags: Tensor | None,
    count: int,
) -> Tensor:
    """Return records ``[r, D]`` from exact gradients at the layer's output."""
    for _ in range(POLISHING):
        exact = layer.gradients(x, y).T / count
        x = torch.linalg.lstsq(exact, gradient).solution[:, :-1]
        x = with_whole_flags(x, flags)
    return x


def _difference(rebuilt: Grads, received: Grads) -> float:
    """Return the norm of the difference of two gradients over that of the received one."""
    names = [name for name in received if name in rebuilt]
    gap = sum(float((rebuilt[n] - received[n].double()).square().sum()) for n in names)
    whole = sum(float(received[n].double().square().sum()) for n in names)
    return (gap / whole) ** 0.5 if whole else float("inf")
