"""Inputs behind a ReLU as rays of a cone: linear programs over the rows of a gradient.

The inputs of a layer behind a ReLU are at least 0, and many are 0. Combinations of the rows R with
no entry below 0 form a cone. A record is an edge of it: its zeros alone determine it. A linear
objective is largest at an edge, so linear programs find records. Edges that are none have hardly
more zeros than an edge needs, and a record has far more.
"""

import numpy as np
import torch
from numpy.random import Generator
from scipy.optimize import linprog
from torch import Tensor

from leakgauge.inversion.exact_batch.factors import FactoredGradient

SLACK = 1e-5
"""How far an entry may lie below 0, since the rows are rounded; rows have norm 1."""

TIGHT = 1e-3
"""Share of the largest entry of an edge below which an entry is 0."""


class Rays:
    """Edges of the cone of one gradient.

    Args:
        factors: the factors of the gradient.
        rng: source of the objectives.
    """

    def __init__(self, factors: FactoredGradient, rng: Generator) -> None:
        self._factors, self._rng = factors, rng
        live = factors.right[:, :-1][:, factors.live].T
        left, singular, right = torch.linalg.svd(live, full_matrices=False)
        self._to_row = right.T / singular
        self._from_row = singular[:, None] * right
        self._sum = left.sum(dim=0, keepdim=True).cpu().numpy()
        self._entries = (left / left.norm(dim=1, keepdim=True)).cpu().numpy()

    def one(self, known: Tensor) -> Tensor | None:
        """Return a candidate for the inputs of a record ``[D]``; None where a program gave none.

        Args:
            known: rows of records ``[k, r]`` that are known; it is another one.
        """
        objective = self._rng.normal(size=self._factors.rank)
        if len(known):
            basis = np.linalg.qr((self._from_row @ known.T).cpu().numpy())[0]
            objective = objective - basis @ (basis.T @ objective)
        found = linprog(
            -objective,
            A_ub=-self._entries,
            b_ub=np.full(len(self._entries), SLACK),
            A_eq=self._sum / np.linalg.norm(self._sum),
            b_eq=[1.0],
            bounds=(None, None),
            method="highs-ds",
        )
        if found.x is None:
            return None
        entries = np.abs(self._entries @ found.x)
        tight = self._entries[entries < TIGHT * entries.max()]
        if len(tight) < self._factors.rank:
            return None
        edge = torch.from_numpy(np.linalg.svd(tight, full_matrices=False)[2][-1])
        whole = self._to_row @ edge.to(self._to_row) @ self._factors.right
        x = whole[:-1] / whole[-1]
        return x if bool(x.isfinite().all()) else None
