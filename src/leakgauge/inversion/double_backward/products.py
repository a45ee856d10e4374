"""Inner products of large stacks, differentiated in few passes over memory.

The gradients of a network are often larger than all else that an inner step touches, so an
objective should not copy them; and a network has many parameters, so the objective should not run
an autograd operation for each.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from leakgauge.gradients.flattening import alike, flat_leaf


def products(
    ones: Sequence[Tensor], others: Sequence[Tensor], weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``sum_l w_l <one_l, other_l>`` and ``sum_l w_l |one_l|^2`` of each row, ``[N]`` both.

    They are differentiable once, in ``ones``; all else is constant.

    Args:
        ones: stacks ``[N, *p]``.
        others: the second factors, of the same shapes.
        weights: weight of each stack and row, ``[L, N]``.

    >>> products([torch.tensor([[3.0, 4.0]])], [torch.tensor([[1.0, 2.0]])], torch.ones(1, 1))
    (tensor([11.]), tensor([25.]))
    """
    result: tuple[Tensor, Tensor] = _Products.apply(tuple(others), weights, *ones)  # type: ignore[no-untyped-call]
    return result


def squares(stacks: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return ``sum_l w_l |row_l|^2`` of each row of stacks ``[N, *p]``, ``[N]``, without a copy.

    >>> squares([torch.tensor([[3.0, 4.0]])], torch.tensor([[2.0]]))
    tensor([50.])
    """
    return _weighted([_dots(stack, stack) for stack in stacks], weights)


def _dots(one: Tensor, other: Tensor) -> Tensor:
    """Return one dot product per row, ``[N]``. Torch's norm is less exact for squared norms."""
    pairs = zip(flat_leaf(one), flat_leaf(other), strict=True)
    return torch.stack([torch.dot(a, b) for a, b in pairs])


def _weighted(rows: list[Tensor], weights: Tensor) -> Tensor:
    """Return ``sum_l w_l rows_l``, ``[N]``."""
    return (weights * torch.stack(rows)).sum(0)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, others: tuple[Tensor, ...], weights: Tensor, *ones: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(*ones, *others)
        ctx.weights = weights
        # Together for each leaf, while it is in the cache.
        dots, norms = [], []
        for one, other in zip(ones, others, strict=True):
            dots.append(_dots(one, other))
            norms.append(_dots(one, one))
        return _weighted(dots, weights), _weighted(norms, weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_dot: Tensor, to_square: Tensor) -> tuple[Tensor | None, ...]:
        weights, count = ctx.weights, len(ctx.weights)
        by_dot, by_square = (weights * to_dot).unbind(), (2 * weights * to_square).unbind()
        ones, others = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        slopes = [
            (other * alike(dot, other)).addcmul_(one, alike(square, one))
            for one, other, dot, square in zip(ones, others, by_dot, by_square, strict=True)
        ]
        return None, None, *slopes
