"""Spans of the inputs of a layer, read from the gradients of its weights.

A linear map ``y = x W`` has the gradient ``sum_i x_i (dL/dy_i)^T`` over all tokens i. Its columns
span the inputs x, as long as the tokens are fewer than the dimensions: then a vector lies in the
span if it is one of the inputs, and else, of a discrete set of vectors, hardly ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Span:
    """The span of a layer's inputs, as far as one gradient shows it.

    Attributes:
        basis: orthonormal ``[rank, k]``, float64.
        through: the matrix ``[k, d]`` that the inputs pass before the gradient shows them (the
            first half of an adapter); None where it shows the inputs themselves, and k is d.
        most: the largest rank that this gradient can have, whatever the inputs.
        slack: how far noise may move an input out of the span, relative to its length.
    """

    basis: Tensor
    through: Tensor | None
    most: int
    slack: float

    @property
    def rank(self) -> int:
        """The number of dimensions of the span."""
        return len(self.basis)

    @property
    def full(self) -> bool:
        """Whether the gradient has no room for another dimension, so the span may lack some."""
        return self.rank >= self.most

    def of(self, inputs: Tensor) -> Tensor:
        """Return inputs ``[..., d]`` as the gradient shows them ``[..., k]``, float64."""
        inputs = inputs.double()
        return inputs if self.through is None else inputs @ self.through.T

    def distance(self, inputs: Tensor) -> Tensor:
        """Return how far each input lies from the span, relative to its length: 0 is inside.

        Args:
            inputs: ``[..., d]``.

        >>> span = Span(torch.eye(3, dtype=torch.float64)[:1], None, 3, 0.0)
        >>> span.distance(torch.tensor([[2.0, 0.0, 0.0], [3.0, 0.0, 4.0]])).tolist()
        [0.0, 0.8]
        """
        shown = self.of(inputs)
        inside = shown @ self.basis.T
        outside = (shown - inside @ self.basis).norm(dim=-1)
        relative: Tensor = outside / shown.norm(dim=-1).clamp_min(torch.finfo(torch.float64).tiny)
        return relative


def span_of(gradients: Sequence[Tensor], *, noise: float = 0.0, through: Tensor | None) -> Span:
    """Return the span of the inputs of maps that share them.

    A singular value counts above ``sqrt(max(k, m)) * eps`` of the largest: rounding to a precision
    eps, at random, adds less; and, where the gradient has noise, above the largest singular value
    that the noise alone has, about ``noise * (sqrt(k) + sqrt(m))``. The noise then turns the span
    by no more than the latter over the smallest value that counts (Davis and Kahan): its ``slack``.

    Args:
        gradients: of the weights, each ``[k, m]`` with the inputs' axis first.
        noise: standard deviation of the noise in each entry.
        through: as of ``Span``.
    """
    stacked = torch.cat(list(gradients), dim=1)
    k, m = stacked.shape
    u, values, _ = torch.linalg.svd(stacked.double(), full_matrices=False)
    largest = float(values[0])
    floor = max(
        max(k, m) ** 0.5 * torch.finfo(stacked.dtype).eps * largest, noise * (k**0.5 + m**0.5)
    )
    rank = int((values > floor).sum())
    slack = noise * (k**0.5 + m**0.5) / float(values[rank - 1]) if rank else 0.0
    return Span(u[:, :rank].T.contiguous(), through, min(k, m), slack)


def dimensions(inputs: Tensor) -> int:
    """Return the dimension of the space that vectors ``[n, k]`` fill.

    A layer norm takes one dimension away, for example.

    >>> dimensions(torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [1.0, 0.0, -1.0]]))
    2
    """
    values = torch.linalg.eigvalsh(inputs.double().T @ inputs.double())
    scale = max(inputs.shape) * torch.finfo(torch.float32).eps
    return int((values > float(values[-1]) * scale**2).sum())
