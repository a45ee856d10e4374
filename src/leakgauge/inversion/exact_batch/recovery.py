"""Recovers all records of one batch, and certifies them by their own gradient."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Grads
from leakgauge.inversion.exact_batch.directions import ZERO, directions
from leakgauge.inversion.exact_batch.factors import FactoredGradient, factors_of
from leakgauge.inversion.exact_batch.found import Found, is_spanned
from leakgauge.inversion.exact_batch.layer import LinearLayer
from leakgauge.inversion.exact_batch.rays import rows_behind_relu
from leakgauge.inversion.exact_batch.vertices import vertices

UNKNOWN = -1
"""Label of a record whose label was not found."""

FLAG = 0.05
"""A one-hot column so near to 0 or 1 is set to it."""

HOPELESS = 0.1
"""Noise over the smallest singular value of the records from which nothing is searched for."""

NOISES = 3.0
"""Entries of a direction that are zero but for noise are below this multiple of it."""

IDLE = 30
"""Rounds in a row without anything new after which the search stops."""

FEWER_IDLE = 8
"""The same where the rank is below the number of records. Equal records count once there, and can
be found; others that depend on each other have no zeros to find."""

MANY_ZEROS = 1e-6
"""Largest entry that counts as zero where directions are ordered by their zeros."""

LABEL = 0.05
"""Largest relative difference of a record's gradient from that under its label."""

CERTIFIED, MOST_CERTIFIED = 100.0, 1e-3
"""Roundings up to which two gradients are equal, and their largest relative difference: types
coarser than float32 show too little for a certificate."""

POLISHING = 4
"""Times that records are computed anew from the gradients at the layer's output."""


@dataclass(frozen=True, eq=False)
class Recovery:
    """The records of one batch.

    Attributes:
        x: records ``[k, D]`` that the gradient shows, float64.
        y: their labels ``[k]`` int64; ``UNKNOWN`` where none fits.
        rank: numerical rank of the layer's gradient, at most the number of records.
        is_noisy: whether the gradient has more than the rank of its records, beyond rounding.
        difference: relative difference of their gradient from the received one; infinite where
            records or labels are missing.
        is_certified: whether the difference is rounding.
    """

    x: Tensor
    y: Tensor
    rank: int
    is_noisy: bool
    difference: float
    is_certified: bool


def recover(
    layer: LinearLayer,
    grads: Grads,
    count: int,
    *,
    flags: Tensor | None,
    precision: torch.dtype,
    seed: int,
    most: int,
) -> Recovery:
    """Return the records behind one gradient.

    Args:
        layer: the layer whose gradient it is.
        grads: one gradient, leaf ``[*p]``.
        count: number of records of the batch.
        flags: positions of one-hot columns ``[k]``; None where records have none.
        precision: type that the gradient had.
        seed: seed of both searches.
        most: rounds of both searches before it stops without all records.
    """
    weight, bias = (grads[name].double() for name in layer.names)
    gradient = torch.cat([weight, bias[:, None]], dim=1)
    factors = factors_of(gradient, layer.weight, layer.bias, most=count, precision=precision)
    idle = IDLE if factors.rank == count else FEWER_IDLE
    x, columns = _sought(layer, factors, flags, seed, most, idle)
    if flags is not None:
        x = _whole(x, flags)
    y = torch.full((len(x),), UNKNOWN, dtype=torch.int64, device=x.device)
    if len(x) == factors.rank:
        x, y = _polished(layer, factors, gradient, x, columns, count, flags)
    difference = float("inf")
    if len(x) == count and bool((y >= 0).all()):
        difference = _difference(layer.mean_gradient(x, y), grads)
    limit = min(CERTIFIED * torch.finfo(precision).eps, MOST_CERTIFIED)
    return Recovery(x, y, factors.rank, factors.is_noisy, difference, difference <= limit)


def _sought(
    layer: LinearLayer,
    factors: FactoredGradient,
    flags: Tensor | None,
    seed: int,
    most: int,
    idle: int,
) -> tuple[Tensor, Tensor]:
    """Return the records ``[k, D]`` that the gradient confirms, and columns of Q ``[r, k']``."""
    found = Found(factors)
    if factors.rest >= HOPELESS:
        return found.records(), found.columns()
    behind = factors.right.new_zeros(0, factors.right.shape[1] - 1)
    if layer.is_behind_relu and factors.rank > 1:
        rows = rows_behind_relu(factors, stream(seed, "edges"))
        behind = (rows @ factors.right)[:, :-1]
        if len(rows) == factors.rank:
            return behind, torch.linalg.inv(rows)
    for x in behind:
        found.add(x)
    _search(found, flags, seed, most, idle)
    return (behind if len(behind) > len(found) else found.records()), found.columns()


def _search(found: Found, flags: Tensor | None, seed: int, most: int, idle: int) -> None:
    factors = found.factors
    if factors.rank == 1:
        found.add(factors.records(torch.ones_like(factors.right[:, :1]))[0][0])
        return
    sparse: list[Tensor] = []
    zero = max(ZERO, NOISES * factors.rest)
    rounds = directions(factors.left, torch_stream(seed, "starts"), zero=zero)
    programs: Iterator[Tensor | None] = iter(())
    if flags is not None and len(flags):
        programs = vertices(factors, flags, stream(seed, "objectives"))
    still, tried = 0, 0
    for _ in range(most):
        before, new = len(found), next(rounds)
        sparse += new
        if new or before > tried:  # else it would try the same directions again
            _add_together(found, sparse)
        tried = before
        for record in itertools.islice(programs, factors.rank):
            if record is not None:
                found.add(record)
        still = 0 if len(found) > before or new else still + 1
        if found.is_whole or still == idle:
            return


def _add_together(found: Found, sparse: list[Tensor]) -> None:
    """Take the sparsest independent directions, and add the records that they stand for.

    A wrong direction among them spoils some records, and the gradient does not confirm these.
    """
    factors, rank = found.factors, found.factors.rank
    zeros = [int(((factors.left @ q).abs() < MANY_ZEROS).sum()) for q in sparse]
    order = sorted(range(len(sparse)), key=lambda at: -zeros[at])
    columns = list(found.columns().T)
    for at in order:
        if len(columns) == rank:
            break
        if not is_spanned(sparse[at], columns):
            columns.append(sparse[at])
    if len(columns) < rank:
        return
    for x in factors.records(torch.stack(columns, dim=1))[0]:
        if bool(x.isfinite().all()):
            found.add(x)


def _polished(
    layer: LinearLayer,
    factors: FactoredGradient,
    gradient: Tensor,
    x: Tensor,
    q: Tensor,
    count: int,
    flags: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return records ``[r, D]`` and labels ``[r]`` from exact gradients at the layer's output."""
    scale = factors.records(q)[1]
    received = (factors.left @ q * scale).T * count
    y = _labels(layer, x, received)
    if bool((y < 0).any()):
        return x, y
    for _ in range(POLISHING):
        exact = layer.gradients(x, y).T / count
        x = torch.linalg.lstsq(exact, gradient).solution[:, :-1]
        if flags is not None:
            x = _whole(x, flags)
    return x, y


def _labels(layer: LinearLayer, x: Tensor, received: Tensor) -> Tensor:
    """Return the label under which each record has the received gradient; else ``UNKNOWN``."""
    classes = layer.classes(x)
    each = torch.arange(classes, device=x.device).repeat(len(x))
    found = layer.gradients(x.repeat_interleave(classes, dim=0), each)
    found = found.reshape(len(x), classes, -1)
    gap = (found - received[:, None]).norm(dim=2) / received.norm(dim=1, keepdim=True)
    best = gap.min(dim=1)
    return torch.where(best.values <= LABEL, best.indices, UNKNOWN)


def _whole(x: Tensor, flags: Tensor) -> Tensor:
    """Return records whose one-hot columns near 0 or 1 are 0 or 1."""
    x, values = x.clone(), x[:, flags]
    whole = values.round().clamp(0, 1)
    x[:, flags] = torch.where((values - whole).abs() <= FLAG, whole, values)
    return x


def _difference(rebuilt: Grads, received: Grads) -> float:
    """Return the norm of the difference of two gradients over that of the received one."""
    names = [name for name in received if name in rebuilt]
    gap = sum(float((rebuilt[n] - received[n].double()).square().sum()) for n in names)
    whole = sum(float(received[n].double().square().sum()) for n in names)
    return (gap / whole) ** 0.5 if whole else float("inf")
