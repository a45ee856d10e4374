"""Inner products of large stacks, differentiated in few passes over memory.

The gradients of a network are often larger than all else that an inner step touches, so an
objective should not make copies of them.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def products(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """``<one, other>`` and ``|one|^2`` of each row, ``[N]`` both, from ``[N, P]``.

    Differentiable once, in ``one``; ``other`` is a constant.

    >>> products(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 2.0]]))
    (tensor([11.]), tensor([25.]))
    """
    found: tuple[Tensor, Tensor] = _Products.apply(one, other)  # type: ignore[no-untyped-call]
    return found


def squares(rows: Tensor) -> Tensor:
    """``|row|^2`` of each row of ``[N, P]``, ``[N]``, without a copy of the rows.

    >>> squares(torch.tensor([[3.0, 4.0]]))
    tensor([25.])
    """
    return torch.stack([torch.dot(row, row) for row in rows])


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(one, other)
        dots = torch.stack([torch.dot(a, b) for a, b in zip(one, other, strict=True)])
        return dots, squares(one)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_dot: Tensor, to_square: Tensor) -> tuple[Tensor, None]:
        one, other = ctx.saved_tensors
        return (other * to_dot[:, None]).addcmul_(one, 2 * to_square[:, None]), None
