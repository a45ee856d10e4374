"""The records of one gradient that the gradient confirms."""

import torch
from torch import Tensor

from leakgauge.inversion.exact_batch.factors import FactoredGradient

SPANNED = 1e-4
"""Distance of a direction from the span of others below which it is no new one."""


class Found:
    """Records that the gradient confirms, and their columns of Q.

    Args:
        factors: the factors of the gradient.
        by_zeros: whether inputs are at least 0 and often 0, so that their zeros confirm them too.
    """

    def __init__(self, factors: FactoredGradient, *, by_zeros: bool = False) -> None:
        self.factors, self.by_zeros = factors, by_zeros
        self._x: list[Tensor] = []
        self._q: list[Tensor | None] = []
        self._keys: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._x)

    @property
    def is_whole(self) -> bool:
        """Whether there are as many records as the gradient has dimensions."""
        return len(self) == self.factors.rank

    def add(self, x: Tensor) -> bool:
        """Keep a record ``[D]`` if the gradient confirms it and it is new; return whether it is."""
        q = self.factors.confirmed(x)
        key = q
        if self.by_zeros:
            row = self.factors.row(x)
            is_one = q is not None or self.factors.is_confirmed_by_zeros(x)
            key = row / row.norm() if is_one else None
        if key is None or self.is_whole or is_spanned(key, self._keys):
            return False
        self._x.append(x)
        self._q.append(q)
        self._keys.append(key)
        return True

    def rows(self) -> Tensor:
        """Return the rows of Q^-1 ``[k, r]``, up to their size, where zeros confirm records."""
        empty = self.factors.left.new_zeros(0, self.factors.rank)
        return torch.stack(self._keys) if self._keys else empty

    def columns(self) -> Tensor:
        """Return the known columns of Q ``[r, k]``; all of them where all records are known."""
        if self.by_zeros and self.is_whole:
            return torch.linalg.inv(self.rows())
        known = [q for q in self._q if q is not None]
        empty = self.factors.left.new_zeros(self.factors.rank, 0)
        return torch.stack(known, dim=1) if known else empty

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
