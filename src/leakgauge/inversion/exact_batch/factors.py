"""The gradient of a linear layer as a product of its inputs and of what reached each unit.

For inputs ``X [r, D]`` of a batch and the loss's gradients ``D [H, r]`` at the layer's output, the
gradients of weight and bias together are ``A = D [X, 1]``, of rank r where the inputs of the
records are independent. With its singular vectors ``A = L R``, L ``[H, r]``, both factors are
known but for one matrix Q ``[r, r]``: ``D = L Q`` and ``[X, 1] = Q^-1 R``. A ReLU makes a column of
D zero at each unit that its record leaves off, so the columns of Q are the vectors q for which
``L q`` has many zeros.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.precision import rounding_norm

ROUNDINGS = 3.0
"""Roundings that a singular value of a gradient exceeds, if it is not rounding itself."""

NOISE = 64.0
"""Roundings from which a singular value beyond the batch's records is not rounding."""

OFF = 1e-3
"""A unit is off for a record below this share of the largest output, with a minus sign."""

CONFIRMED = 1e-2
"""Largest ratio of the two smallest singular values for a record. Records of Adult had at most
1e-6, others at least 0.08."""

SPARE = 2
"""Units that a record leaves off beyond the rank, so that chance shows no null vector."""


@dataclass(frozen=True, eq=False)
class FactoredGradient:
    """Both factors of a gradient, and the layer that it belongs to; all float64.

    Attributes:
        left: orthonormal columns L ``[H, r]``.
        right: rows R ``[r, D + 1]``, the singular values included; the last column is the bias.
        weight: the layer's weight ``[H, D]``.
        bias: the layer's bias ``[H]``.
        rest: the largest singular value that was left out, over the smallest that was not.
        is_noisy: whether more than rounding was left out.
    """

    left: Tensor
    right: Tensor
    weight: Tensor
    bias: Tensor
    rest: float
    is_noisy: bool

    @property
    def rank(self) -> int:
        """r, the number of records that the gradient shows."""
        return self.left.shape[1]

    def records(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Return the records ``[r, D]`` of the columns of Q ``[r, r]``, and the columns' scales.

        A record stands for itself with 1 at the bias, which decides each column's scale: the
        gradient at the layer's output is ``left @ (q * scale)``. Scale and record are not finite
        where a column belongs to no record.
        """
        rows = torch.linalg.lstsq(q, self.right).solution
        return rows[:, :-1] / rows[:, -1:], rows[:, -1]

    def rows(self, x: Tensor) -> Tensor:
        """Return the rows C ``[k, r]`` with ``C @ right = [x, 1]`` for records ``[k, D]``."""
        whole = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        rows: Tensor = torch.linalg.lstsq(self.right.T, whole.T).solution.T
        return rows

    def confirmed(self, x: Tensor) -> Tensor | None:
        """Return the column q ``[r]`` of a record ``[D]``, or None if the gradient has no such one.

        Units that the record leaves off see the other records alone: L has a null vector there.
        """
        z = self.weight @ x + self.bias
        off = self.left[z < -OFF * z.abs().max()]
        if not bool(z.isfinite().all()) or len(off) < self.rank + SPARE:
            return None
        values, vectors = torch.linalg.svd(off, full_matrices=False)[1:]
        if self.rank > 1 and bool(values[-1] > CONFIRMED * values[-2]):
            return None
        null: Tensor = vectors[-1]
        return null


def factors_of(
    gradient: Tensor, weight: Tensor, bias: Tensor, *, most: int, precision: torch.dtype
) -> FactoredGradient:
    """Return the factors of a gradient.

    Args:
        gradient: the gradients of weight and bias together ``[H, D + 1]``.
        weight: the layer's weight ``[H, D]``.
        bias: its bias ``[H]``.
        most: number of records of the batch, which the factors' rank does not exceed.
        precision: type that the gradient had.

    >>> two = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1e-9, 0.0], [0.0, 0.0, 1e-3]])
    >>> found = factors_of(two, two, two[0], most=1, precision=torch.float32)
    >>> found.rank, found.is_noisy
    (1, True)
    """
    values = gradient.double()
    left, singular, right = torch.linalg.svd(values, full_matrices=False)
    rounding = rounding_norm(values, precision)
    rest = float(singular[most]) if most < len(singular) else 0.0
    kept = int((singular[:most] > ROUNDINGS * max(rounding, rest)).sum())
    kept = max(1, kept)
    scaled = singular[:kept, None] * right[:kept]
    ratio = rest / max(float(singular[kept - 1]), 1e-300)
    layer = weight.double(), bias.double()
    return FactoredGradient(left[:, :kept], scaled, *layer, ratio, rest > NOISE * rounding)
