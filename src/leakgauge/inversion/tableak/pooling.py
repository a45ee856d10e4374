"""Pools the members of an ensemble into one batch, and says how far they agree on each cell."""

import math

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.core.types import Schema
from leakgauge.inversion.tableak.cells import TOLERANCE, same_cells

TIE = 1e-3
"""Weight of the distance between two rows, relative to a cell: it decides where cells do not."""


def aligned(members: Tensor, best: Tensor, labels: Tensor, schema: Schema) -> Tensor:
    """Return the members of an ensemble with their rows in the order of one of them.

    A gradient does not hold the order of its batch, so each member has its own. The rows of a
    member are assigned to those with the same label that agree with them in most cells; the
    truth plays no part.

    Args:
        members: rows ``[R, B, D]``.
        best: rows ``[B, D]`` that give the order.
        labels: labels of the rows ``[B]``, or numbers ``[B, ...]``; the same for all members.
        schema: the columns.
    """
    flat = labels.reshape(len(labels), -1)
    others = (flat[:, None] != flat[None]).any(-1)
    ordered = []
    for rows in members:
        differ = (~same_cells(best[:, None], rows[None], schema)).double().sum(-1)
        apart = torch.cdist(best.double(), rows.double())
        cost = differ + TIE * apart / apart.amax().clamp(min=1e-12)
        cost += others * (2.0 * len(schema.columns))
        _, order = linear_sum_assignment(cost.cpu().numpy())
        ordered.append(rows[torch.from_numpy(order).to(rows.device)])
    return torch.stack(ordered)


def pooled(members: Tensor, schema: Schema) -> Tensor:
    """Return one batch ``[B, D]`` from aligned members ``[R, B, D]``: medians.

    The median of each position is taken; those of a category sum to 1 again. Where all of these
    medians are 0, the means take their place.

    >>> from leakgauge.core.types import Column
    >>> age = Schema((Column("age", "number", 0, 1),), "y", (), {})
    >>> pooled(torch.tensor([[[1.0]], [[2.0]], [[9.0]]]), age)
    tensor([[2.]])
    """
    ranked, middle = members.sort(0).values, len(members) // 2
    batch = (ranked[middle] + ranked[-1 - middle]) / 2
    means = members.mean(0)
    for one in schema.columns:
        if one.kind == "category":
            own = slice(one.start, one.stop)
            batch[:, own] = _shares(batch[:, own], means[:, own])
    return batch


def confidence_of(members: Tensor, schema: Schema) -> Tensor:
    """Return how far aligned members agree on each cell, ``[B, C]`` from 0 to 1.

    For a category: 1 - the entropy of the mean of the members' shares, over the largest possible
    one. For a number: the chance that a normal value with the spread of the members lies within
    ``TOLERANCE`` of its mean. It falls with the spread, as the entropy of TabLeak's paper rises. A
    single member has no spread, so its numbers get 0.

    Args:
        members: rows ``[R, B, D]``, in one order.
        schema: the columns.
    """
    means = members.double().mean(0)
    spread = members.double().std(0) if len(members) > 1 else torch.full_like(means, math.inf)
    found = []
    for one in schema.columns:
        if one.kind == "category":
            found.append(1 - _entropy(means[:, one.start : one.stop]))
        else:
            near = TOLERANCE / math.sqrt(2) / spread[:, one.start].clamp(min=1e-12)
            found.append(near.erf())
    return torch.stack(found, -1)


def _shares(medians: Tensor, means: Tensor) -> Tensor:
    total = medians.sum(-1, keepdim=True)
    return torch.where(total > 0, medians / total.where(total > 0, 1.0), means)


def _entropy(shares: Tensor) -> Tensor:
    """Return the entropy of shares ``[B, k]`` over the logarithm of k, ``[B]`` from 0 to 1."""
    if shares.shape[-1] == 1:
        return torch.zeros_like(shares[..., 0])
    terms: Tensor = torch.special.entr(shares / shares.sum(-1, keepdim=True))
    return (terms.sum(-1) / math.log(shares.shape[-1])).clamp(0, 1)
