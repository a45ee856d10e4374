"""Reads single records off the gradient of a first linear layer that a server altered."""

import time
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Grads, Task
from leakgauge.inversion.exact import FLOOR, first_gradients
from leakgauge.inversion.exact_batch.layer import ProbedLayer, first_layer
from leakgauge.inversion.exact_batch.peeling import UNKNOWN
from leakgauge.inversion.methods import IMPRINT, Method, Traits
from leakgauge.inversion.observed import AttackOptions, Knowledge, ObservedUpdates, Reconstruction

CONFIRMED = 1e-3
"""Largest relative difference of a candidate's own gradient at its unit from the received one."""

OUTSIDE = 0.05
"""Largest share of a candidate's own gradient at all units outside the span of the received one."""

ROUNDING = 1e-5
"""Size of a dimension of a gradient, relative to the largest, below which it is rounding."""

SAME = 1e-3
"""Largest difference of a coordinate between two candidates that are one, relative to the largest
coordinate where that is above 1."""

EQUAL_ROWS = 1e-6
"""Largest relative difference between the rows of a layer that measures one number."""

AT_ONCE = 256
"""Candidates that run through the model at once."""


@dataclass(frozen=True)
class Imprint(Method):
    """Divides gradients of single units, or differences of neighbours, and confirms each quotient.

    Where a single record reaches a unit, the gradient of its weights divided by that of its bias is
    the record. Where all units measure the same number, the differences of neighbouring units take
    the place of single ones. A quotient is a record if, under some label, its own gradient at the
    unit equals the received one, and that at all units lies in the span of the received gradient's
    columns, which has as many dimensions as the batch has records. A mixture of records fails this.
    Where the records depend on each other, or are more than units or values, the second test does
    not hold, and the first is ten times as strict. Confirmed records come first, then other
    quotients by the size of their gradients.

    Confirmation is ours; the papers count how many records are among the quotients.

    References:
        Fowl et al., Robbing the Fed, ICLR 2022, section 4; Boenisch et al., When the Curious
        Abandon Honesty, EuroS&P 2023, section 4.
    """

    traits: ClassVar[Traits] = Traits(
        does="divides gradients of a first linear layer that a server altered.", uses_labels=False
    )

    @property
    def described(self) -> str:
        """Its name: it has no settings."""
        return IMPRINT

    def rebuild(
        self, task: Task, seen: ObservedUpdates, known: Knowledge, options: AttackOptions
    ) -> Reconstruction:
        """Return the records that were read; arguments and errors as for ``Method``."""
        began = time.perf_counter()
        count, *shape = seen.shape
        guess = known.stand_in(tuple(shape))
        layer = first_layer(task, seen.params, guess)
        targets = len(next(iter(seen.grads.values())))
        x = guess.expand(targets, *seen.shape).clone()
        y = torch.full(x.shape[:2], UNKNOWN, dtype=torch.int64, device=x.device)
        confirmed = 0
        for target in range(targets):
            grads = {name: leaf[target : target + 1] for name, leaf in seen.grads.items()}
            found = read(layer, task, seen, grads).first(count)
            rows = found.x.to(x).reshape(-1, *shape)
            rows[~found.confirmed] = rows[~found.confirmed].clamp(known.low, known.high)
            x[target, : len(rows)], y[target, : len(rows)] = rows, found.y
            confirmed += int(found.confirmed.sum())
        note = (
            f"{IMPRINT}: the gradient confirms {confirmed} of {targets * count} records one by "
            "one, without the truth; the other places hold quotients that may be mixtures"
        )
        return Reconstruction.direct(x, y, seconds=time.perf_counter() - began, notes=(note,))


@dataclass(frozen=True, eq=False)
class Quotients:
    """Quotients that may be records, the best first.

    Attributes:
        x: quotients ``[k, D]``, float64.
        y: the label under which each fits best ``[k]``.
        confirmed: whether its own gradient equals the received one ``[k]``.
    """

    x: Tensor
    y: Tensor
    confirmed: Tensor

    def first(self, most: int) -> "Quotients":
        """Return the first ``most`` candidates that differ from those before them."""
        free = torch.ones(len(self.x), dtype=torch.bool, device=self.x.device)
        kept: list[int] = []
        for at in range(len(self.x)):
            if len(kept) == most:
                break
            if free[at]:
                kept.append(at)
                reach = SAME * max(1.0, float(self.x[at].abs().amax()))
                free &= (self.x - self.x[at]).abs().amax(dim=1) > reach
        return Quotients(self.x[kept], self.y[kept], self.confirmed[kept])


def read(layer: ProbedLayer, task: Task, seen: ObservedUpdates, grads: Grads) -> Quotients:
    """Return all quotients of one update.

    Args:
        layer: the model's first layer.
        task: the model as the server sent it.
        seen: updates of B records.
        grads: one update, leaf ``[1, *p]``.

    Raises:
        InputError: the gradients do not fit the first layer, or are not finite.
    """
    weight, bias = first_gradients(task, seen.params, grads)
    whole, units = weight, torch.arange(len(bias), device=bias.device)
    if measures_one_number(layer.weight):
        units = layer.bias.argsort(descending=True, stable=True)  # records leave them in this order
        weight, bias = weight[units], bias[units]
        weight, bias = weight - _next(weight), bias - _next(bias)
    used = bias.abs() > FLOOR * bias.abs().max()
    weight, bias, units = weight[used], bias[used], units[used]
    x = weight / bias[:, None]
    gaps, labels = _gaps(layer, x, units, bias * seen.shape[0])
    is_active = (x * layer.weight[units]).sum(dim=1) + layer.bias[units] > 0
    confirmed = is_active & (gaps <= CONFIRMED)
    basis = columns_of(whole, seen.shape[0])
    if basis is None:
        confirmed &= gaps <= CONFIRMED / 10
    else:
        passed = confirmed.nonzero().flatten()
        confirmed[passed] = _outside(layer.gradients(x[passed], labels[passed]), basis) <= OUTSIDE
    # Sizes of gradients are below the largest, so confirmed candidates come first.
    rank = torch.where(confirmed, gaps, 2.0 - bias.abs() / bias.abs().max())
    order = rank.argsort(stable=True)
    return Quotients(x[order], labels[order], confirmed[order])


def columns_of(received: Tensor, records: int) -> Tensor | None:
    """Return a basis ``[H, B]`` of the gradients of a batch's records at the layer's output.

    None where the received gradient has fewer than B dimensions above rounding.

    Args:
        received: gradient of the layer's weights ``[H, D]``: a sum over the batch of products of a
            record's gradient at the output and the record.
        records: B, the records of the batch.
    """
    if records > min(received.shape):
        return None
    vectors: Tensor
    squares, vectors = torch.linalg.eigh(received @ received.T)
    if squares[-records] <= ROUNDING**2 * squares[-1]:
        return None
    return vectors[:, -records:]


def _outside(own: Tensor, basis: Tensor) -> Tensor:
    """Return the share of gradients ``[n, H]`` outside the span of a basis ``[H, B]``, ``[n]``."""
    rest = own - own @ basis @ basis.T
    share: Tensor = rest.norm(dim=1) / own.norm(dim=1).clamp(min=torch.finfo(own.dtype).tiny)
    return share


def measures_one_number(weight: Tensor) -> bool:
    """Return whether all rows of a layer's weights ``[H, D]`` are equal."""
    return bool((weight - weight[0]).abs().amax() <= EQUAL_ROWS * weight.abs().amax())


def _next(values: Tensor) -> Tensor:
    """Return each value's successor; that of the last is 0."""
    return torch.cat([values[1:], torch.zeros_like(values[:1])])


def _gaps(layer: ProbedLayer, x: Tensor, units: Tensor, received: Tensor) -> tuple[Tensor, Tensor]:
    """Return how far each candidate's gradient is from the received one, and its best label.

    Args:
        layer: the model's first layer.
        x: candidates ``[k, D]``.
        units: the unit of each ``[k]``.
        received: the gradient of the unit's bias, of the sum of losses ``[k]``.
    """
    gaps, labels = [], []
    for rows in torch.split(torch.arange(len(x), device=x.device), AT_ONCE):
        outputs, slopes = layer.slopes(x[rows], units[rows])
        own = torch.stack(
            [_times_loss_slope(layer.task, outputs, slopes, y) for y in range(outputs.shape[1])]
        )
        gap = (own - received[rows]).abs() / received[rows].abs()
        best = gap.min(dim=0)
        gaps.append(best.values)
        labels.append(best.indices)
    if not gaps:
        raise InputError("no unit of the first layer has a gradient; check the update")
    return torch.cat(gaps), torch.cat(labels)


def _times_loss_slope(task: Task, outputs: Tensor, slopes: Tensor, label: int) -> Tensor:
    """Return the gradient of each record's own loss at its unit ``[k]``, if it had this label."""
    leaf = outputs.clone().requires_grad_()
    y = torch.full((len(leaf),), label, dtype=torch.int64, device=leaf.device)
    with torch.enable_grad():
        loss = task.mean_loss(leaf, y) * len(leaf)
    (found,) = torch.autograd.grad(loss, leaf)
    return (found * slopes).sum(dim=1)
