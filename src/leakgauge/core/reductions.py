"""How a loss combines its records: a sum, a mean, or a mean weighted by class; tried out.

The slope of a batch's loss in the outputs of a record is compared with the slope of that record's
own loss, that of a batch of one. Nothing is taken from the name or the type of a loss.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from leakgauge.core.checks import require
from leakgauge.core.losses import REFUSALS, record_losses, refuse_own_leaves
from leakgauge.core.precision import relative_tolerance

MeanLoss = Callable[[Tensor, Tensor], Tensor]
"""``(outputs [B, ...], targets [B, ...]) -> loss of the batch []``, as ``Task.mean_loss``."""

BLOCK = 128
"""Number of classes whose weights are found at once."""

RELATIVE = 1e-4
"""Largest relative difference of two slopes that are equal but for rounding to float32."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """How the loss of a batch follows from its records' own losses.

    Attributes:
        summed: whether it is their sum, else their mean.
        weights: weight of each class in the mean ``[C]``, float64, at most 1; ones for a sum, whose
            records' own losses hold their weights.
    """

    summed: bool
    weights: Tensor


def record_slopes(loss: MeanLoss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of each record's own loss in its outputs, in the shape of ``outputs``.

    >>> loss = torch.nn.functional.cross_entropy
    >>> record_slopes(loss, torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor([[-0.5000,  0.5000],
            [ 0.5000, -0.5000]])
    """
    return _slopes(lambda leaf: summed_loss(loss, leaf, targets), outputs)


def summed_loss(loss: MeanLoss, outputs: Any, targets: Tensor) -> Tensor:
    """Return the sum of the records' own losses, by ``vmap`` unless the loss branches on data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch runs some operations one by one, and says so
        try:
            return record_losses(loss, outputs, targets, vectorised=True).sum()
        except (RuntimeError, ValueError):
            return record_losses(loss, outputs, targets, vectorised=False).sum()


def shares(loss: MeanLoss, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Return how much of each record's own slope is in that of the batch ``[B]``, float64.

    It is 1 / B for a mean and 1 for a sum. None stands for a loss whose records interact in another
    way, or whose slopes are zero or not finite.

    >>> loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    >>> shares(loss, torch.zeros(2, 2), torch.tensor([0, 1]))
    tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    own = record_slopes(loss, outputs, targets).double().flatten(1)
    together = _slopes(lambda leaf: loss(leaf, targets), outputs).double().flatten(1)
    squares = own.square().sum(1)
    found = (together * own).sum(1) / squares
    apart = (together - found[:, None] * own).norm(dim=1)
    sound = apart <= _relative(outputs) * together.norm(dim=1)
    return found if bool((found.isfinite() & sound & (squares > 0)).all()) else None


def _slopes(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> Tensor:
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaf = outputs.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(loss(leaf), leaf)
    return slopes


def reduction_of(loss: MeanLoss, classes: int, *, like: Tensor) -> Reduction | None:
    """Return how a loss of classes combines records; None for another loss or another way.

    A loss of classes has another slope for each class.

    Args:
        loss: called with outputs ``[n, classes]`` and int64 targets ``[n]``.
        classes: number of outputs, 2 or more.
        like: a tensor with the type and the device of the outputs.

    >>> summed = torch.nn.CrossEntropyLoss(torch.tensor([1.0, 4.0]), reduction="sum")
    >>> reduction_of(summed, 2, like=torch.zeros(1)).summed
    True
    >>> meaned = torch.nn.CrossEntropyLoss(torch.tensor([1.0, 4.0]))
    >>> reduction_of(meaned, 2, like=torch.zeros(1)).weights
    tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    weights = torch.ones(classes, dtype=torch.float64, device=like.device)
    kinds = set()
    if not _tells_classes(loss, weights, like):
        return None
    for block in torch.split(torch.arange(classes, device=like.device), BLOCK):
        zeros = block.new_zeros(2)  # Class 0 links the blocks.
        # Two batches of other proportions: the weights must be those of classes, not of a batch.
        for targets in (torch.cat([zeros, block]), torch.cat([zeros, zeros, block, block[1::2]])):
            outputs = torch.arange(len(targets) * classes).sin().to(like).reshape(-1, classes)
            try:
                found = shares(loss, outputs, targets)
            except REFUSALS:
                return None
            if found is None or bool((found <= 0).any()):
                return None
            if len(targets) == 2 + len(block):
                weights[block] = found[2:] / found[0]
            own = weights[targets]
            if _close(found, torch.ones_like(found), outputs):
                kinds.add("sum")
            elif _close(found, own / own.sum(), outputs):
                kinds.add("mean")
            else:
                return None
    return Reduction("sum" in kinds, weights / weights.max()) if len(kinds) == 1 else None


def _tells_classes(loss: MeanLoss, classes: Tensor, like: Tensor) -> bool:
    """Return whether neighbouring classes have different slopes, where all outputs are equal."""
    targets = torch.arange(min(BLOCK, len(classes)), device=like.device)
    equal = like.new_zeros(len(targets), len(classes))
    try:
        slopes = record_slopes(loss, equal, targets)
    except REFUSALS:
        return False
    return bool((slopes != slopes.roll(1, 0)).any(1).all())


def _close(found: Tensor, expected: Tensor, outputs: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=_relative(outputs), atol=0)


def _relative(outputs: Tensor) -> float:
    return relative_tolerance(outputs.dtype, RELATIVE)


def refuse_penalty(loss: MeanLoss, outputs: Tensor, targets: Tensor) -> None:
    """Refuse a loss that reads trainable tensors itself, by ``refuse_own_leaves``.

    Args:
        loss: loss of the task.
        outputs: outputs of the model ``[B, ...]``, also in lists and mappings.
        targets: their targets ``[B, ...]``.

    Raises:
        InputError: it does.
    """
    with torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaf = tree_map_only(Tensor, _as_leaf, outputs)
        try:
            found = loss(tree_map_only(Tensor, Tensor.clone, leaf), targets)  # it may write them
        except REFUSALS:  # What does not fit is refused where it is used.
            return
    if isinstance(found, Tensor):
        refuse_own_leaves(found, leaf)


def _as_leaf(output: Tensor) -> Tensor:
    return output.detach().requires_grad_(output.is_floating_point())


def refuse_summed(loss: MeanLoss, outputs: Any, targets: Tensor) -> None:
    """Refuse a loss that adds up the losses of its records, where a mean is expected.

    Args:
        loss: loss of the task.
        outputs: outputs of the model for two records or more ``[B, ...]``, also in lists and
            mappings.
        targets: their targets ``[B, ...]``.

    Raises:
        InputError: the loss of the batch is the sum of the records' own losses.

    >>> summed = torch.nn.MSELoss(reduction="sum")
    >>> refuse_summed(summed, torch.zeros(3, 2), torch.ones(3, 2))
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: the loss of 3 records is the sum of their losses, expected \
their mean; take the mean, as by reduction="mean", and multiply the learning rate by the batch size
    """
    try:
        if not isinstance(outputs, Tensor):
            summed, count = _is_sum(loss, outputs, targets), len(targets)
        else:
            moved = record_slopes(loss, outputs, targets).flatten(1).any(1)  # not fitted exactly
            outputs, targets = outputs[moved], targets[moved]
            found = shares(loss, outputs, targets) if len(targets) > 1 else None
            count = len(targets)
            summed = found is not None and _close(found, torch.ones_like(found), outputs)
    except REFUSALS:  # What does not fit is refused where it is used.
        return
    require(
        not summed,
        f"the loss of {count} records is the sum of their losses, expected their mean; take the "
        'mean, as by reduction="mean", and multiply the learning rate by the batch size',
    )


def _is_sum(loss: MeanLoss, outputs: Any, targets: Tensor) -> bool:
    """Return whether the value of a batch's loss is the sum of its records', and not their mean."""
    with torch.no_grad():
        own, together = summed_loss(loss, outputs, targets), loss(outputs, targets)
    return len(targets) > 1 and bool(own != 0) and torch.allclose(together, own, rtol=RELATIVE)
