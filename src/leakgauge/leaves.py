"""Stacks of gradients as rows of numbers."""

import math

import torch
from torch import Tensor

from leakgauge.types import Grads


def flat_leaf(leaf: Tensor) -> Tensor:
    """A leaf ``[N, *p]`` as ``[N, D]``; a parameter may be a single number, and N may be 0.

    >>> flat_leaf(torch.zeros(3)).shape, flat_leaf(torch.zeros(0, 2, 4)).shape
    (torch.Size([3, 1]), torch.Size([0, 8]))
    """
    return leaf.reshape(len(leaf), math.prod(leaf.shape[1:]))


def flatten(grads: Grads) -> Tensor:
    """All coordinates ``[N, D]``, leaf after leaf.

    >>> flatten({"w": torch.ones(2, 3, 4), "b": torch.ones(2)}).shape
    torch.Size([2, 13])
    """
    return torch.cat([flat_leaf(leaf) for leaf in grads.values()], dim=1)


def norms(grads: Grads) -> Tensor:
    """The l2 norm ``[N]`` of each row over all leaves together.

    >>> norms({"w": torch.tensor([[3.0]]), "b": torch.tensor([4.0])})
    tensor([5.])
    """
    each = [torch.linalg.vector_norm(flat_leaf(leaf), dim=1) for leaf in grads.values()]
    found: Tensor = torch.linalg.vector_norm(torch.stack(each), dim=0)
    return found
