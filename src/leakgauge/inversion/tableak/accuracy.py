"""TabLeak's measure of rebuilt rows, its guess at random, and what a confidence is worth."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Schema
from leakgauge.inversion.tableak.cells import same_cells

QUARTER = 0.25
"""Share of the cells that count as the most confident, and as the least."""


def cells_right(x: Tensor, truth: Tensor, schema: Schema) -> tuple[Tensor, Tensor]:
    """Return which cells of rebuilt batches are right, by the measure of TabLeak's paper.

    A category is right if it is the same, a number within ``TOLERANCE`` standard deviations. The
    rows of a batch are assigned to the true ones so that most cells are right. It uses the truth,
    so it is for scoring only.

    Args:
        x: rebuilt rows ``[T, B, D]``.
        truth: true rows ``[T, B, D]``.
        schema: the columns.

    Returns:
        Bool ``[T, B, C]`` in the order of the truth, and that order: positions ``[T, B]`` in ``x``.
    """
    hits, orders = [], []
    for rows, real in zip(x, truth, strict=True):
        same = same_cells(rows[None], real[:, None], schema)
        _, order = linear_sum_assignment(-same.sum(-1).cpu().numpy())
        order = torch.from_numpy(order).to(rows.device)
        hits.append(same[torch.arange(len(real), device=rows.device), order])
        orders.append(order)
    return torch.stack(hits), torch.stack(orders)


def random_rows(public: Tensor, shape: torch.Size, schema: Schema, *, seed: int) -> Tensor:
    """Return rows whose columns are drawn one by one from public rows: the paper's random guess.

    Args:
        public: public rows ``[n, D]``.
        shape: shape of the guess ``[T, B, D]``.
        schema: the columns.
        seed: seed of the draws.
    """
    rng, rows = stream(seed, "random rows"), []
    for one in schema.columns:
        drawn = rng.integers(len(public), size=tuple(shape[:2]))
        rows.append(public[torch.from_numpy(drawn), one.start : one.stop])
    return torch.cat(rows, -1)


@dataclass(frozen=True)
class SureCells:
    """How often cells are right among those with the most and the least confidence.

    Attributes:
        most: share of right cells in the most confident quarter, by update ``[T]``.
        least: share of right cells in the least confident quarter ``[T]``.
    """

    most: Tensor
    least: Tensor


def sure_cells(hits: Tensor, confidence: Tensor) -> SureCells:
    """Return how often the most and the least confident quarter of an update's cells are right.

    Args:
        hits: whether cells are right, bool ``[T, n]``.
        confidence: their confidence ``[T, n]``; equal ones keep their order.

    >>> hits = torch.tensor([[True, True, False, False]])
    >>> sure_cells(hits, torch.tensor([[0.9, 0.8, 0.7, 0.6]])).least.tolist()
    [0.0]
    """
    count = int(np.ceil(QUARTER * hits.shape[1]))
    order = confidence.sort(dim=1, descending=True, stable=True).indices
    sorted_hits = hits.gather(1, order).double()
    return SureCells(sorted_hits[:, :count].mean(1), sorted_hits[:, -count:].mean(1))
