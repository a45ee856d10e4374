"""Views: functions that reduce a stack of gradients to features.

A view is applied to each chunk of gradients, so a stack of full gradients is never held at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import max_pool1d

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flat_leaf, flatten

View = Callable[[Grads], Tensor]
"""Maps gradients with leaves ``[n, *p]`` to features ``[n, D]``, row by row."""

SMALL_LEAF = 16
"""Leaves with at most this many coordinates are features themselves in some views."""


@dataclass(frozen=True)
class FlattenView:
    """The flattened gradient, leaf after leaf.

    >>> FlattenView()({"w": torch.ones(2, 3, 4), "b": torch.ones(2, 3)}).shape
    torch.Size([2, 15])
    """

    def __call__(self, grads: Grads) -> Tensor:
        """Return all coordinates ``[n, D]``."""
        return flatten(grads)


def small_leaves(grads: Grads) -> list[Tensor]:
    """Return the small leaves ``[n, d]``, such as the last bias, with signs.

    >>> leaves = small_leaves({"weight": torch.ones(2, 5, 4), "bias": torch.ones(2, 5)})
    >>> [list(leaf.shape) for leaf in leaves]
    [[2, 5]]
    """
    return [flat_leaf(leaf) for leaf in grads.values() if leaf[0].numel() <= SMALL_LEAF]


TABLE_KERNEL, OTHER_KERNEL = 3, 10


def kernel_for(x: Tensor) -> int:
    """Return the paper's kernel of max-pooling for records ``x [n, ...]``.

    It is 3 for rows of a table and 10 for other data. Features that were extracted from speech
    (CREMA-D) are rows of a table here, and speech in the paper: pass the kernel for them.

    References:
        Li et al., CCS 2024, section 5.1.3.

    >>> kernel_for(torch.zeros(5, 14)), kernel_for(torch.zeros(5, 3, 32, 32))
    (3, 10)
    """
    return TABLE_KERNEL if x.ndim == 2 else OTHER_KERNEL


@dataclass(frozen=True)
class MaxPool:
    """1-d max-pooling of each flattened leaf, with the kernel as stride.

    The paper pools the gradient vector and does not say whether windows reach across parameters.
    Here each parameter is pooled separately, with a possibly shorter last window, so that no
    window mixes two layers.

    Attributes:
        kernel: width of a window.
        whole: whether to pool the whole vector, leaf after leaf, instead.

    References:
        Li et al., CCS 2024, section 5.1.3.

    >>> MaxPool(3)({"b": torch.tensor([[1.0, 5.0, 2.0, -1.0]])})
    tensor([[ 5., -1.]])
    """

    kernel: int = 3
    whole: bool = False

    def __post_init__(self) -> None:
        require_positive(self.kernel, "pooling kernel")

    def __call__(self, grads: Grads) -> Tensor:
        """Return the maxima of the windows ``[n, D]``."""
        if self.kernel == 1:
            return flatten(grads)
        leaves = [flatten(grads)] if self.whole else grads.values()
        pooled = [
            max_pool1d(leaf.reshape(len(leaf), 1, -1), self.kernel, ceil_mode=True)[:, 0]
            for leaf in leaves
        ]
        return torch.cat(pooled, dim=1)


@dataclass(frozen=True)
class PartialView:
    """A view of a part of each gradient.

    Attributes:
        view: maps gradients to features.
        sees: maps gradients to their observed part.
    """

    view: View
    sees: Callable[[Grads], Grads]

    def __call__(self, grads: Grads) -> Tensor:
        """Return features ``[n, D]`` of whole gradients."""
        return self.view(self.sees(grads))
