"""Scatter of records within their groups, from their inner products alone."""

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Scatter:
    """n records ``G [n, D]`` in m groups; all of it follows from an n x n matrix.

    Attributes:
        gram: ``G @ G.T``.
        codes: the group of each ``[n]``.
        values: m.
    """

    gram: Floats
    codes: Ints
    values: int

    @functools.cached_property
    def groups(self) -> Floats:
        """``[n, m]``; ``G.T @ groups`` are the groups' means."""
        groups: Floats = np.eye(self.values)[self.codes]
        return groups / np.bincount(self.codes, minlength=self.values)

    def centre(self, rows: Floats) -> Floats:
        """Subtract from each row the mean of its group's rows; ``rows [n, k]``."""
        centred: Floats = rows - (self.groups.T @ rows)[self.codes]
        return centred

    @property
    def freedom(self) -> int:
        """The divisor of sums of squares within the groups."""
        return max(1, len(self.codes) - self.values)

    @functools.cached_property
    def within(self) -> Floats:
        """Inner products of the records less their groups' means, over the degrees of freedom."""
        return self.centre(self.centre(self.gram).T) / self.freedom

    @property
    def trace(self) -> float:
        """Of the covariance S within the groups; 1 where all records of a group are the same."""
        return float(np.trace(self.within)) or 1.0
