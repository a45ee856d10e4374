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

SMALL = 2**16
"""Numbers of a stack's row up to which stacks are joined: a copy costs less than an operation."""


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


def in_memory_order(leaf: Tensor, like: Tensor) -> Tensor:
    """Return rows ``[N, D]`` of a leaf ``[N, *p]``, in the order of ``like [N, *p]`` in memory.

    It is a view where both lie in memory in the same way. Products do not depend on the order.
    """
    if _inner(like):
        return leaf.movedim(-3, -1).reshape(len(leaf), -1)
    return flat_leaf(leaf)


def _inner(leaf: Tensor) -> bool:
    """Return whether a stack of kernels ``[N, O, I, h, w]`` has its channels I innermost."""
    return leaf.dim() == 5 and not leaf.is_contiguous() and leaf.movedim(-3, -1).is_contiguous()


def _like(rows: Tensor, leaf: Tensor) -> Tensor:
    """Return rows ``[N, D]`` in the shape of ``leaf [N, *p]`` and its order."""
    if _inner(leaf):
        return rows.view(leaf.movedim(-3, -1).shape).movedim(-1, -3)
    return rows.view(leaf.shape)


def _dots(one: Tensor, other: Tensor) -> Tensor:
    """Return one dot product per row, ``[N]``. Torch's norm is less exact for squared norms."""
    rows = in_memory_order(one, one), in_memory_order(other, one)
    return _row_dots(*rows)


def _row_dots(one: Tensor, other: Tensor) -> Tensor:
    return torch.stack([torch.dot(a, b) for a, b in zip(one, other, strict=True)])


def _weighted(rows: list[Tensor], weights: Tensor) -> Tensor:
    """Return ``sum_l w_l rows_l``, ``[N]``."""
    return (weights * torch.stack(rows)).sum(0)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, others: tuple[Tensor, ...], weights: Tensor, *ones: Tensor
    ) -> tuple[Tensor, Tensor]:
        small = [at for at, one in enumerate(ones) if one.numel() <= SMALL * len(one)]
        large = [at for at in range(len(ones)) if at not in small]
        dots, norms, joined = [], [], list[Tensor]()
        if small:
            rows, weighted, target = _joined(ones, others, weights, small)
            joined = [weighted, target]
            dots.append(_row_dots(rows, target))
            norms.append(_row_dots(rows, weighted))
        for at in large:  # Together for each leaf, while it is in the cache.
            dots.append(weights[at] * _dots(ones[at], others[at]))
            norms.append(weights[at] * _dots(ones[at], ones[at]))
        ctx.save_for_backward(*ones, *others, *joined)
        ctx.weights, ctx.small, ctx.large = weights, small, large
        return torch.stack(dots).sum(0), torch.stack(norms).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_dot: Tensor, to_square: Tensor) -> tuple[Tensor | None, ...]:
        weights, count = ctx.weights, len(ctx.weights)
        ones, others = ctx.saved_tensors[:count], ctx.saved_tensors[count : 2 * count]
        slopes: list[Tensor | None] = [None] * count
        if ctx.small:
            weighted, target = ctx.saved_tensors[2 * count :]
            rows = (target * to_dot[:, None]).addcmul_(weighted, 2 * to_square[:, None])
            sizes = [ones[at][0].numel() for at in ctx.small]
            for at, part in zip(ctx.small, rows.split(sizes, 1), strict=True):
                slopes[at] = _like(part, ones[at])
        for at in ctx.large:
            by_dot, by_square = weights[at] * to_dot, 2 * weights[at] * to_square
            slope = others[at] * alike(by_dot, others[at])
            slopes[at] = slope.addcmul_(ones[at], alike(by_square, ones[at]))
        return None, None, *slopes


def _joined(
    ones: Sequence[Tensor], others: Sequence[Tensor], weights: Tensor, small: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the small leaves as rows ``[N, D]``: as they are, weighted, and weighted others."""
    rows = torch.cat([in_memory_order(ones[at], ones[at]) for at in small], 1)
    target = torch.cat([in_memory_order(others[at], ones[at]) for at in small], 1)
    each = [weights[at][:, None].expand(-1, ones[at][0].numel()) for at in small]
    spread = torch.cat(each, 1)
    return rows, rows * spread, target * spread
