"""Refuses gradients, labels and boxes that do not fit the model or the search."""

import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.losses import is_class_loss
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.gradients.probing import (
    explained,
    private,
    refuse_random,
    refuse_written,
)
from leakgauge.gradients.watching import OperationWatcher
from leakgauge.inversion.search.settings import SearchSettings


def classes_of(task: Task, params: Params, x: Tensor) -> int | None:
    """Return the number of outputs of the model on a batch ``x [B, ...]``.

    It is None for anything but scores ``[B, classes]`` of two classes or more and a loss of
    classes.

    Raises:
        InputError: the model does not take such records, or draws random numbers.
    """
    own, seen = private(task, params), OperationWatcher()
    seen.follow(dict(own.model.named_parameters()))
    with torch.no_grad(), explained(f"the model refuses records {list(x.shape)}"), seen:
        outputs = own.outputs(x)
    refuse_random(task.model, seen)
    refuse_written(task.model, seen.changed(dict(own.model.named_parameters())))
    shaped = isinstance(outputs, Tensor) and outputs.dim() == 2 and outputs.shape[1] > 1
    scored = shaped and is_class_loss(task.mean_loss, outputs.shape[1], like=outputs)
    return outputs.shape[1] if scored else None


def check_gradients(params: Params, observed: Grads) -> int:
    """Return the number of targets of a stack of gradients that fits ``params``.

    Raises:
        InputError: a name or a shape does not fit, or a row is not finite or all zeros.
    """
    for name in observed:
        require_known(name, params, f"gradient of {name!r}: no such parameter")
    for name, value in params.items():
        require(name in observed, f"the gradient of {name!r} is missing; the model has it")
        shape = observed[name].shape
        require(
            shape[1:] == value.shape and len(shape) == value.dim() + 1,
            f"the gradient of {name!r} is {list(shape)}; expected [T, *{list(value.shape)}]",
        )
    counts = {len(value) for value in observed.values()}
    require(len(counts) == 1, f"gradients are of {sorted(counts)} targets; expected one number")
    squares = torch.stack([flat_leaf(leaf).double().square().sum(1) for leaf in observed.values()])
    for target, square in enumerate(squares.sum(0).tolist()):
        require(
            square == square and square < float("inf"),
            f"the gradient of target {target} is not finite; drop it",
        )
        require(square > 0, f"the gradient of target {target} is all zeros; drop it")
    return counts.pop()


def check_box(
    settings: SearchSettings, start: Tensor, low: Tensor | None, high: Tensor | None
) -> None:
    """Refuse a box without limits, and limits that do not broadcast to a record."""
    require(
        not settings.boxed or (low is not None and high is not None),
        "the attack keeps records in a box; pass low and high, or set boxed=False",
    )
    for name, value in (("low", low), ("high", high)):
        if value is not None:
            record = list(start.shape[3:])
            pairs = zip(reversed(value.shape), reversed(record), strict=False)
            require(
                value.dim() <= len(record) and all(own in (1, size) for own, size in pairs),
                f"{name} is {list(value.shape)}; expected it to broadcast to a record {record}",
            )


def check_joint(settings: SearchSettings, classes: int | None) -> int:
    """Return the number of classes among which labels are searched for; refuse a search of none."""
    require(
        settings.joint_labels,
        "the attack needs labels [T, B]; infer them (infer_labels), pass known ones, "
        "or set joint_labels=True",
    )
    if classes is None:
        raise InputError(
            "labels are searched for among classes, and the model does not output scores of two "
            "or more, or its loss has no classes; pass the labels (as known)"
        )
    return classes


def check_labels(labels: Tensor, targets: int, count: int, classes: int | None) -> None:
    """Refuse labels whose shape, type or values do not fit."""
    if labels.is_floating_point() and classes is None:
        require(
            labels.shape[:2] == (targets, count),
            f"labels are {list(labels.shape)}; expected [{targets}, {count}, ...]",
        )
        return
    require(
        labels.dtype == torch.int64 and labels.shape == (targets, count),
        f"labels are {labels.dtype} {list(labels.shape)}; "
        f"expected int64 [{targets}, {count}], one for each record",
    )
    low, high = int(labels.min()), int(labels.max())
    require(
        low >= 0 and (classes is None or high < classes),
        f"labels run from {low} to {high}; the model has classes 0 to {(classes or 0) - 1}"
        if classes is not None
        else f"the smallest label is {low}; expected 0 or more",
    )
