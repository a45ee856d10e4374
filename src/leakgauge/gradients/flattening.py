"""Stacks of gradients as matrices, one gradient per row."""

import math

import torch
from torch import Tensor

from leakgauge.core.types import Grads

_BLOCK = 4096


def flat_leaf(leaf: Tensor) -> Tensor:
    """Return a leaf ``[N, *p]`` as ``[N, D]``; a parameter may be a single number, N may be 0.

    >>> flat_leaf(torch.zeros(3)).shape, flat_leaf(torch.zeros(0, 2, 4)).shape
    (torch.Size([3, 1]), torch.Size([0, 8]))
    """
    return leaf.reshape(len(leaf), math.prod(leaf.shape[1:]))


def alike(values: Tensor, leaf: Tensor) -> Tensor:
    """Return ``values [N]`` in a shape that broadcasts over the rows of ``leaf [N, *p]``."""
    return values.view(-1, *[1] * (leaf.dim() - 1))


def flatten(grads: Grads) -> Tensor:
    """Return all coordinates ``[N, D]``, leaf after leaf.

    >>> flatten({"w": torch.ones(2, 3, 4), "b": torch.ones(2)}).shape
    torch.Size([2, 13])
    """
    return torch.cat([flat_leaf(leaf) for leaf in grads.values()], dim=1)


def norms(grads: Grads) -> Tensor:
    """Return the l2 norm ``[N]`` of each row over all leaves together.

    >>> norms({"w": torch.tensor([[3.0]]), "b": torch.tensor([4.0])})
    tensor([5.])
    """
    each = [_row_norms(flat_leaf(leaf)) for leaf in grads.values()]
    total: Tensor = torch.linalg.vector_norm(torch.stack(each), dim=0)
    return total


def _row_norms(rows: Tensor) -> Tensor:
    """Return the l2 norm of each row of ``[N, D]``, computed in blocks.

    Torch sums a row in order: in single precision its norm of 20 million numbers is a thousandth
    too small, and a gradient clipped by it is too large.
    """
    norm = torch.linalg.vector_norm
    if rows.shape[1] <= _BLOCK:
        plain: Tensor = norm(rows, dim=1)
        return plain
    whole = rows.shape[1] - rows.shape[1] % _BLOCK
    of_blocks = norm(rows[:, :whole].view(len(rows), whole // _BLOCK, _BLOCK), dim=2)
    of_rest = norm(rows[:, whole:], dim=1, keepdim=True)
    total: Tensor = norm(torch.cat([of_blocks, of_rest], dim=1), dim=1)
    return total
