"""Takes known records off a gradient, so that the others are easier to find.

The gradient of a batch is a sum over its records. A record and its label tell its own part. Without
it the rest has fewer dimensions, and shows directions and edges that the whole did not.
"""

import torch
from torch import Tensor

from leakgauge.inversion.exact_batch.factors import FactoredGradient, factors_of
from leakgauge.inversion.exact_batch.layer import ProbedLayer
from leakgauge.inversion.exact_batch.searching import Searcher

UNKNOWN = -1
"""Label of a record whose label was not found."""

FLAG = 0.05
"""A one-hot column so near to 0 or 1 is set to it."""

LABEL = 0.05
"""Largest relative difference of a record's gradient from that under its label."""

SAME = 1e-3
"""Largest difference of a coordinate between two records that are one, relative to the largest."""

CLEAR = 4.0
"""How many times farther the gradient under the second best label lies."""


MISSES = 4
"""Searches in a row that find records of unknown labels alone, after which no more begin."""


def peeled(
    layer: ProbedLayer,
    searcher: Searcher,
    gradient: Tensor,
    factors: FactoredGradient,
    count: int,
    precision: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Return the records ``[k, D]`` behind a gradient, and their labels ``[k]`` or ``UNKNOWN``.

    Nothing is taken off an update that is not the plain gradient of its records: their parts in it
    are other ones.

    Args:
        layer: the layer whose gradient it is.
        searcher: searches for records.
        gradient: gradients of weight and bias together ``[H, D + 1]``.
        factors: the factors of it.
        count: number of records of the batch.
        precision: type that the gradient had.
    """
    x = gradient.new_zeros(0, gradient.shape[1] - 1)
    y = torch.zeros(0, dtype=torch.int64, device=gradient.device)
    loose, misses, is_noisy, most = x, 0, factors.is_noisy, factors.rank
    while True:
        found = with_whole_flags(searcher.records(factors), searcher.flags)
        is_whole = len(found) == factors.rank
        labels = torch.full((len(found),), UNKNOWN, device=x.device)
        if not bool(found.isfinite().all()):  # one of them is no record, which spoils others
            return _with_loose(x, y, loose, most)
        if is_whole:
            labels = _labels_of_parts(layer, factors, found, count)
        if not is_noisy and len(found):
            labels = torch.where(labels < 0, _labels_in_span(layer, factors, found), labels)
        if is_whole:
            return torch.cat([x, found]), torch.cat([y, labels])
        known = labels >= 0
        loose = max(loose, found[~known], key=len)
        x, y = torch.cat([x, found[known]]), torch.cat([y, labels[known]])
        misses = 0 if bool(known.any()) else misses + 1
        if is_noisy or not len(found) or misses == (MISSES if searcher.behind_relu else 1):
            return _with_loose(x, y, loose, most)
        if misses:
            continue
        own = torch.cat([found[known], torch.ones_like(found[known, :1])], dim=1)
        gradient = gradient - layer.gradients(found[known], labels[known]).T @ own / count
        left = factors.rank - len(own)
        factors = factors_of(gradient, layer.weight, layer.bias, most=left, precision=precision)


def _with_loose(x: Tensor, y: Tensor, loose: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Return records and labels, with those records of unknown labels that are none of them.

    Args:
        x: records ``[k, D]``.
        y: their labels ``[k]``.
        loose: records of unknown labels.
        most: number of records that there are at most.
    """
    if len(x) and len(loose):
        gaps = torch.cdist(loose, x, p=float("inf")).amin(dim=1)
        loose = loose[gaps > SAME * loose.abs().amax(dim=1)]
    loose = loose[: most - len(x)]
    unknown = torch.full((len(loose),), UNKNOWN, device=x.device)
    return torch.cat([x, loose]), torch.cat([y, unknown])


def _labels_of_parts(
    layer: ProbedLayer, factors: FactoredGradient, x: Tensor, count: int
) -> Tensor:
    """Return the label under which each of all records has its part in the gradient ``[r]``."""
    own = _under_each_label(layer, x)
    received = (factors.left @ torch.linalg.pinv(factors.rows(x))).T * count
    gaps = (own - received[:, None]).norm(dim=2) / received.norm(dim=1, keepdim=True)
    return torch.where(gaps.amin(dim=1) <= LABEL, gaps.argmin(dim=1), UNKNOWN)


def _labels_in_span(layer: ProbedLayer, factors: FactoredGradient, x: Tensor) -> Tensor:
    """Return the label under which each record's part lies in the gradient's column space ``[k]``.

    This says less than the part itself, but needs no other record.
    """
    own = _under_each_label(layer, x)
    outside = (own - own @ factors.left @ factors.left.T).norm(dim=2)
    gaps = outside / own.norm(dim=2).clamp(min=torch.finfo(own.dtype).tiny)
    two = gaps.sort(dim=1).values
    is_clear = (two[:, 0] <= LABEL) & (two[:, 1] > CLEAR * two[:, 0])
    return torch.where(is_clear, gaps.argmin(dim=1), UNKNOWN)


def _under_each_label(layer: ProbedLayer, x: Tensor) -> Tensor:
    """Return the gradients at the layer's output of records under each label ``[k, C, H]``."""
    classes = layer.classes(x)
    each = torch.arange(classes, device=x.device).repeat(len(x))
    return layer.gradients(x.repeat_interleave(classes, dim=0), each).reshape(len(x), classes, -1)


def with_whole_flags(x: Tensor, flags: Tensor | None) -> Tensor:
    """Return records whose one-hot columns near 0 or 1 are 0 or 1.

    Args:
        x: records ``[k, D]``.
        flags: positions of one-hot columns; None where records have none.
    """
    if flags is None:
        return x
    x, values = x.clone(), x[:, flags]
    whole = values.round().clamp(0, 1)
    x[:, flags] = torch.where((values - whole).abs() <= FLAG, whole, values)
    return x
