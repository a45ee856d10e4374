"""The records of one gradient that the gradient confirms."""

import torch
from torch import Tensor

from leakgauge.inversion.exact_batch.factors import FactoredGradient

SPANNED = 1e-4
"""Distance of a direction from the span of others below which it is no new one."""


class ConfirmedRecords:
    """Records that the gradient confirms, and their columns of Q.

    Args:
        factors: the factors of the gradient.
    """

    def __init__(self, factors: FactoredGradient) -> None:
        self.factors = factors
        self._x: list[Tensor] = []
        self._q: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._q)

    @property
    def is_whole(self) -> bool:
        """Whether there are as many records as the gradient has dimensions."""
        return len(self) == self.factors.rank

    def add(self, x: Tensor) -> None:
        """Keep a record ``[D]`` if the gradient confirms it and it is new."""
        q = self.factors.confirmed(x)
        if q is None or self.is_whole or is_spanned(q, self._q):
            return
        self._x.append(x)
        self._q.append(q)

    def columns(self) -> Tensor:
        """Return the columns of Q ``[r, k]``."""
        empty = self.factors.left.new_zeros(self.factors.rank, 0)
        return torch.stack(self._q, dim=1) if self._q else empty

    def records(self) -> Tensor:
        """Return the records ``[k, D]``, from all columns where these are known."""
        if self.is_whole:
            return self.factors.records(self.columns())[0]
        empty = self.factors.right.new_zeros(0, self.factors.right.shape[1] - 1)
        return torch.stack(self._x) if self._x else empty


def is_spanned(direction: Tensor, others: list[Tensor]) -> bool:
    """Return whether a direction ``[r]`` is a combination of others, but for rounding."""
    if not others:
        return False
    basis = torch.linalg.qr(torch.stack(others, dim=1))[0]
    return float((direction - basis @ (basis.T @ direction)).norm()) < SPANNED
