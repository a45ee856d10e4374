"""Losses by name for classes, numbers and several yes-or-no labels; the loss of each record.

A ``Task`` also takes any other function. ``LOSSES`` holds the named ones.
"""

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from leakgauge.core.checks import InputError, require
from leakgauge.core.graph import nodes_of

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""``(outputs [B, ...], targets [B, ...]) -> a mean [], or the loss of each record [B]``."""


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared error; outputs ``[B, 1]`` fit targets ``[B]``.

    Args:
        outputs: ``[B, ...]``.
        targets: numbers ``[B, ...]``, as many for each record as there are outputs.

    Raises:
        InputError: a record has more outputs than targets, or fewer.

    >>> mse(torch.tensor([[1.0], [2.0]]), torch.tensor([1.0, 4.0]))
    tensor(2.)
    """
    return functional.mse_loss(outputs, _like(outputs, targets, "mse"))


def bce(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean binary cross entropy of logits; outputs ``[B, 1]`` fit targets ``[B]``.

    Args:
        outputs: logits ``[B, k]``.
        targets: 0 or 1, ``[B, k]``: whether each of k labels applies.

    Raises:
        InputError: a record has more outputs than targets, or fewer.

    >>> bce(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.int64))
    tensor(0.6931)
    """
    return functional.binary_cross_entropy_with_logits(outputs, _like(outputs, targets, "bce"))


LOSSES: Mapping[str, LossFunction] = {
    "cross_entropy": functional.cross_entropy,
    "mse": mse,
    "bce": bce,
}
"""The losses that ``Task`` knows by name."""

REFUSALS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError)
"""Errors by which a loss refuses outputs or targets."""

_NUMERIC = (
    *(mse, functional.mse_loss, functional.l1_loss),
    *(functional.smooth_l1_loss, functional.huber_loss),
)


def is_numeric_loss(loss: LossFunction) -> bool:
    """Return whether a loss is known to compare numbers, as the mean squared error does.

    >>> is_numeric_loss(mse), is_numeric_loss(nn.HuberLoss()), is_numeric_loss(bce)
    (True, True, False)
    """
    modules = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)
    return isinstance(loss, modules) or any(loss is one for one in _NUMERIC)


def is_class_loss(loss: LossFunction, classes: int, *, like: Tensor) -> bool:
    """Return whether a loss raises only the output of a record's class, as cross entropy does.

    The loss is tried out: at equal outputs, its slope must be negative at the class only.

    Args:
        loss: called with outputs ``[2, classes]`` and int64 targets ``[2]``.
        classes: number of outputs.
        like: a tensor with the type and the device of the outputs.

    >>> [is_class_loss(loss, 3, like=torch.zeros(1)) for loss in (functional.cross_entropy, mse)]
    [True, False]
    """
    outputs = like.new_zeros(2, classes).requires_grad_()
    targets = torch.tensor([0, classes - 1], device=like.device)
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (slope,) = torch.autograd.grad(loss(outputs, targets), outputs)
    except REFUSALS:
        return False
    return torch.equal(slope < 0, functional.one_hot(targets, classes) > 0)


def is_cross_entropy(loss: LossFunction, classes: int, *, like: Tensor) -> bool:
    """Return whether a loss is the plain mean cross entropy of classes.

    The loss is tried out: its value must be that of ``functional.cross_entropy``, without weights
    or smoothing.

    Args:
        loss: called with outputs ``[n, classes]`` and int64 targets ``[n]``; returns a mean.
        classes: number of outputs.
        like: a tensor with the type and the device of the outputs.

    >>> plain, smooth = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> [is_cross_entropy(loss, 3, like=torch.zeros(1)) for loss in (plain, smooth)]
    [True, False]
    """
    targets = torch.arange(2 * classes + 1, device=like.device) % classes
    outputs = torch.arange(len(targets) * classes).sin().to(like).reshape(-1, classes)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = loss(outputs, targets)
    except REFUSALS:
        return False
    wanted = functional.cross_entropy(outputs, targets)
    return found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-4)


def log_losses(loss: LossFunction, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the differentiable log of each record's loss ``[B]``, in float64.

    The cross entropy of a class is computed from the logits: a probability rounds to 1, and its
    loss to 0, where the other logits are small. Other losses are computed as given.

    Args:
        loss: loss of a ``Task``.
        outputs: ``[B, ...]``.
        targets: ``[B, ...]``.

    >>> log_losses(LOSSES["cross_entropy"], torch.tensor([[0.0, 100.0]]), torch.tensor([1]))
    tensor([-100.], dtype=torch.float64)
    """
    outputs, targets = outputs.double(), targets.clone()  # a loss may write its targets
    if _is_of_a_class(loss, outputs, targets):
        return _log_of_classes(outputs, targets)
    loss, rows = in_double(loss), range(len(targets))
    each = [loss(outputs[row : row + 1], targets[row : row + 1]).reshape(()) for row in rows]
    return torch.stack(each).clamp_min(torch.finfo(outputs.dtype).tiny).log()


def exact_loss(loss: LossFunction, all_targets: Tensor | None = None) -> LossFunction:
    """Return the same loss, computed in float64 from outputs of any precision.

    Args:
        loss: loss of a ``Task``.
        all_targets: all targets that the result is called with. They are then looked through once,
            so that the result does not branch on data, and ``vmap`` takes it.

    The slope comes back in the outputs' own precision and does not round to 0 where a probability
    rounds to 1: the cross entropy of a class is computed from differences of logits.

    >>> outputs = torch.tensor([[0.0, 100.0]], requires_grad=True)
    >>> loss = exact_loss(LOSSES["cross_entropy"])(outputs, torch.tensor([1]))
    >>> torch.autograd.grad(loss, outputs)[0]
    tensor([[ 3.7835e-44, -3.7835e-44]])
    """

    none_ignored = all_targets is not None and not _ignores(loss, all_targets)

    def computed(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs = outputs.double()
        if _is_of_a_class(loss, outputs, targets, none_ignored=none_ignored):
            each = _log_of_classes(outputs, targets).exp()
            return each.sum() if getattr(loss, "reduction", "mean") == "sum" else each.mean()
        return whole(outputs, targets.double() if targets.is_floating_point() else targets)

    whole = in_double(loss)
    return computed


def in_double(loss: LossFunction) -> LossFunction:
    """Return the loss with its own tensors, such as class weights, in float64."""
    return copy.deepcopy(loss).double() if isinstance(loss, nn.Module) else loss


def _log_of_classes(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the log of each record's cross entropy ``[B]``."""
    own = targets[:, None]
    others = outputs.scatter(1, own, -torch.inf).logsumexp(1)
    return _log_softplus(others - outputs.gather(1, own)[:, 0])


def _is_of_a_class(
    loss: LossFunction, outputs: Tensor, targets: Tensor, *, none_ignored: bool = False
) -> bool:
    """Return whether a loss is known as the plain cross entropy of a class."""
    known = loss is functional.cross_entropy
    if type(loss) is nn.CrossEntropyLoss:  # A subclass may compute another loss.
        known = loss.weight is None and loss.label_smoothing == 0
    if not known or outputs.dim() != 2 or targets.is_floating_point():
        return False
    return none_ignored or not _ignores(loss, targets)


def _ignores(loss: LossFunction, targets: Tensor) -> bool:
    """Return whether cross entropy leaves out a target."""
    return bool((targets == getattr(loss, "ignore_index", -100)).any())


def _log_softplus(margins: Tensor) -> Tensor:
    """Return log(log(1 + exp(m))), which is m for small m."""
    safe = margins.clamp_min(-50)
    return torch.where(margins < -50, margins, functional.softplus(safe, threshold=50).log())


@contextmanager
def without_broadcast(outputs: Tensor, targets: Tensor) -> Iterator[None]:
    """Refuse a loss that compares every output with every target, where torch only warns.

    Raises:
        InputError: torch gives that warning inside the block.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Using a target size", category=UserWarning)
        try:
            yield
        except UserWarning as warning:
            raise InputError(
                f"the loss compares each of the outputs {list(outputs.shape)} with each of the "
                f"targets {list(targets.shape)}; make their shapes equal, or name the loss, as in "
                "Task(model, 'mse')"
            ) from warning


def refuse_own_leaves(loss: Tensor, outputs: Any, leaves: Iterable[Tensor] = ()) -> None:
    """Refuse a loss that reads trainable tensors itself, as a penalty on the model's weights does.

    Such a loss holds the weights of the caller's module. Gradients are taken in other tensors, so
    they would lack the penalty.

    Args:
        loss: the loss of outputs, with its graph.
        outputs: outputs of the model, with theirs: tensors, also in lists and mappings.
        leaves: trainable tensors that the gradient is taken in.

    Raises:
        InputError: the loss depends on another trainable tensor by a way around the outputs.

    >>> weight, outputs = torch.ones(3, requires_grad=True), torch.zeros(2, requires_grad=True)
    >>> refuse_own_leaves(outputs.sum(), outputs)
    >>> refuse_own_leaves(outputs.sum() + weight.square().sum(), outputs)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: the loss reads a trainable tensor [3] itself, as a penalty \
on weights does, so its gradient cannot be taken at other weights; leave the penalty to the \
optimizer (weight decay), or detach the tensor
    """
    ends = [one for one in tree_leaves(outputs) if isinstance(one, Tensor)]
    known = {id(one) for one in (*ends, *leaves)}
    for node in nodes_of(loss, without=[one.grad_fn for one in ends]):
        variable = getattr(node, "variable", None)
        require(
            variable is None or id(variable) in known,
            f"the loss reads a trainable tensor {list(getattr(variable, 'shape', ()))} itself, "
            "as a penalty on weights does, so its gradient cannot be taken at other weights; "
            "leave the penalty to the optimizer (weight decay), or detach the tensor",
        )


def _like(outputs: Tensor, targets: Tensor, name: str) -> Tensor:
    """Return the targets in the shape and type of the outputs."""
    require(
        outputs.shape[:1] == targets.shape[:1] and outputs.numel() == targets.numel(),
        f"{name} compares outputs {list(outputs.shape)} with targets {list(targets.shape)}; "
        "expected one target for each output",
    )
    return targets.reshape(outputs.shape).to(outputs.dtype)


def record_losses(
    loss: Callable[[Any, Tensor], Tensor], outputs: Any, y: Tensor, *, vectorised: bool
) -> Tensor:
    """Return the losses ``[B]`` of records.

    Args:
        loss: mean loss of a batch, as ``Task.mean_loss``.
        outputs: ``[B, ...]``, also in lists and mappings; tensors without an axis of B records
            count as the same for each.
        y: targets ``[B, ...]``.
        vectorised: whether to use ``vmap``, which refuses a loss that branches on its data.

    Raises:
        InputError: no output has an axis of B records.

    >>> outputs = {"scores": torch.zeros(3, 2), "temperature": torch.ones(())}
    >>> loss = lambda made, y: functional.cross_entropy(made["scores"], y)
    >>> record_losses(loss, outputs, torch.zeros(3, dtype=torch.int64), vectorised=True)
    tensor([0.6931, 0.6931, 0.6931])
    """
    leaves, structure = tree_flatten(outputs)
    has_records = [isinstance(one, Tensor) and one.shape[:1] == y.shape[:1] for one in leaves]
    if not any(has_records):
        shapes = ", ".join(str(list(one.shape)) for one in leaves if isinstance(one, Tensor))
        raise InputError(
            f"no output of the model has one row for each of {len(y)} records: {shapes}"
        )

    def of_record(own: Sequence[Tensor], target: Tensor) -> Tensor:
        coming = iter(own)
        each = [next(coming) if has else one for one, has in zip(leaves, has_records, strict=True)]
        return loss(tree_unflatten(each, structure), target)

    rows = [one[:, None] for one, has in zip(leaves, has_records, strict=True) if has]
    y = y[:, None]
    if vectorised:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*performance drop")  # still right
            return vmap(of_record)(rows, y)
    return torch.stack([of_record([one[row] for one in rows], y[row]) for row in range(len(y))])
