"""Inputs behind a ReLU as edges of a cone: linear programs over the rows of a gradient.

The inputs of a layer behind a ReLU are at least 0, and many are 0. Combinations of the rows R with
no entry below 0 form a cone. A record is an edge of it: its zeros alone determine it. A linear
objective is largest at an edge, so linear programs find records.

An edge may belong to no record: a difference of two records that loses its first entry has their
common zeros and one more. This one holds it alone, which its leverage shows: a record has so many
zeros that it needs none of them.
"""

import numpy as np
import torch
from numpy.random import Generator
from scipy.optimize import linprog
from torch import Tensor

from leakgauge.inversion.exact_batch.directions import ZERO
from leakgauge.inversion.exact_batch.factors import SPARE, FactoredGradient
from leakgauge.inversion.exact_batch.found import is_spanned

LIVE = 1e-5
"""Norm of an input over a batch, relative to the largest, below which it is rounding."""

SLACK = 1e-5
"""How far an entry may lie below 0, since the rows are rounded; rows have norm 1."""

TIGHT = (1e-3, 3e-4)
"""Entries of an edge that count as 0, relative to the largest, while it is computed anew."""

NOISES = 3.0
"""Entries that are 0 but for noise are below this multiple of it."""

ALIKE = 1e-4
"""Distance of two inputs over a batch below which they are one; their norm is 1."""

HELD = 0.999
"""Leverage of a zero from which the edge hangs on it alone."""

FRUITLESS, FEWER_FRUITLESS = 40, 16
"""Linear programs in a row without a new record after which no more are tried; fewer once there are
records that can be taken off the gradient."""


def rows_behind_relu(factors: FactoredGradient, rng: Generator) -> Tensor:
    """Return the rows c ``[k, r]`` of records, ``c @ right`` being inputs with 1 at the bias.

    Args:
        factors: the factors of the gradient of a layer behind a ReLU.
        rng: source of the objectives.
    """
    cone = _Cone(factors)
    known: list[Tensor] = []
    fruitless = 0
    while len(known) < factors.rank and fruitless < (FEWER_FRUITLESS if known else FRUITLESS):
        # Every second program looks apart from the records that are known. Where it finds no
        # record, the others still do.
        one = cone.edge(rng.normal(size=factors.rank), [] if fruitless % 2 else known)
        fruitless += 1
        if one is not None and not is_spanned(one, known):
            known.append(one)
            fruitless = 0
    if not known:
        return factors.right.new_zeros(0, factors.rank)
    rows: Tensor = torch.stack(known) @ cone.to_rows.T
    return rows / (rows @ factors.right[:, -1:])


class _Cone:
    """Combinations of the rows of a gradient with no entry below 0, in orthonormal coordinates.

    Attributes:
        entries: each input over the batch, of norm 1, ``[D', r]``.
        to_rows: brings coordinates to combinations of the rows ``[r, r]``.
    """

    def __init__(self, factors: FactoredGradient) -> None:
        inputs = factors.right[:, :-1]
        norm = inputs.norm(dim=0)
        left, singular, right = torch.linalg.svd(
            inputs[:, norm > LIVE * norm.max()].T, full_matrices=False
        )
        self.entries = left / left.norm(dim=1, keepdim=True)
        self.to_rows = right.T / singular
        self._bias = factors.right[:, -1] @ self.to_rows
        self._sum = (left.sum(dim=0) / left.sum(dim=0).norm()).cpu().numpy()[None]
        self._noise = NOISES * factors.rest

    def edge(self, objective: "np.ndarray", known: list[Tensor]) -> Tensor | None:
        """Return an edge ``[r]`` that belongs to a record, of norm 1; None if a program gave none.

        Args:
            objective: coordinates ``[r]`` of what is largest at the edge.
            known: edges that are not to be found again.
        """
        if known:
            basis = torch.linalg.qr(torch.stack(known, dim=1))[0].cpu().numpy()
            objective = objective - basis @ (basis.T @ objective)
        entries = self.entries.cpu().numpy()
        found = linprog(
            -objective,
            A_ub=-entries,
            b_ub=np.full(len(entries), max(SLACK, self._noise)),
            A_eq=self._sum,
            b_eq=[1.0],
            bounds=(None, None),
            method="highs-ds",
        )
        if found.x is None:
            return None
        one = torch.from_numpy(found.x).to(self.entries)
        zero = max(ZERO, self._noise)
        for reach in (*TIGHT, zero):
            at = (self.entries @ one).abs()
            zeros = self.entries[at <= reach * at.max()]
            if len(zeros) < len(one):
                return None
            one = torch.linalg.svd(zeros, full_matrices=False)[2][-1]
        one = one * (one @ self._bias).sign()
        at = self.entries @ one
        is_inside = bool((at > -zero).all())
        return one if is_inside and _is_held(self.entries[at.abs() < zero]) else None


def _is_held(zeros: Tensor) -> bool:
    """Return whether an edge has zeros ``[n, r]`` enough, and hangs on none of them alone.

    >>> from torch import nn
    >>> two = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> more = nn.functional.normalize(torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0]]))
    >>> third = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0]]) / 10**0.5
    >>> _is_held(two), _is_held(torch.cat([two, more, third]))
    (False, True)
    """
    gaps = (zeros @ zeros.T).abs().triu(1).amax(dim=0)
    distinct = zeros[gaps < 1 - ALIKE]  # inputs that are equal in the whole batch count once
    rank = zeros.shape[1]
    if len(distinct) < rank + SPARE:
        return False
    left = torch.linalg.svd(distinct, full_matrices=False)[0][:, : rank - 1]
    return bool(left.square().sum(dim=1).max() < HELD)
