"""Infers the labels of a batch from its gradient, by the method that fits the batch."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, require, require_choice, require_count
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.labels.methods import (
    NOISE,
    Counted,
    OutputLayer,
    counts,
    expectation,
    gradinversion,
    idlg,
    output_layer_of,
)
from leakgauge.inversion.labels.signs import counts_by_signs
from leakgauge.inversion.labels.slopes import Slopes

LabelMethod = Literal["auto", "idlg", "gradinversion", "counts"]

_NO_STAND_IN = (
    "counting labels needs the model's mean prediction; pass like=... (public records, a "
    "reconstruction), or record=... (a record's shape) and rng=... for noise"
)

_NO_SIGN = (
    "the slope of this loss is not smallest at the label, as with label smoothing, so "
    'method "gradinversion" cannot sort by it; use "counts"'
)


@dataclass(frozen=True, eq=False)
class LabelGuess:
    """Inferred labels; their order within a batch has no meaning.

    Attributes:
        labels: ``[T, B]`` int64, ascending within each batch.
        method: ``"idlg"``, ``"gradinversion"`` or ``"counts"``.
        counts: records of each class ``[T, C]`` int64; each row adds up to B.
        residual: distance of the counts from whole numbers ``[T]``, in records, as in ``Counted``;
            None where labels were not counted.
    """

    labels: Tensor
    method: str
    counts: Tensor
    residual: Tensor | None = None


def infer_labels(
    task: Task,
    params: Params,
    grads: Grads,
    batch: int,
    *,
    method: LabelMethod = "auto",
    signs: bool = False,
    like: Tensor | None = None,
    record: tuple[int, ...] | None = None,
    rng: np.random.Generator | None = None,
) -> LabelGuess:
    """Return the labels behind each of T gradients.

    Args:
        task: a model that ends in a linear layer, and a loss of classes: the sum of the records'
            losses, or their mean, also weighted by class.
        params: parameters where the gradients were computed.
        grads: leaf ``[T, *p]``, each the gradient of the loss of B records.
        batch: number of records in a batch, B, which clients of federated averaging send.
        method: ``"auto"`` takes ``"idlg"`` for single records and ``"counts"`` for batches.
        signs: whether the coordinates have lost their size, as after steps of Adam; then the
            counts follow from the signs, for plain cross entropy.
        like: records ``[T or 1, n, ...]`` like the private ones, for ``"counts"``. The other
            methods only use them to see what the model does with its last linear layer.
        record: shape of a record; if ``like`` is None, standard normal noise of this shape
            replaces it.
        rng: generator of the noise.

    Raises:
        InputError: the loss has no classes, the model has no linear layer, its gradient is
            missing, zero or not finite, or the method cannot be used for this batch.

    >>> from torch import nn
    >>> task = Task(nn.Linear(3, 2), nn.functional.cross_entropy)
    >>> grads = {"weight": torch.ones(1, 2, 3), "bias": torch.tensor([[-0.4, 0.4]])}
    >>> infer_labels(task, dict(task.model.named_parameters()), grads, 1).labels
    tensor([[0]])
    """
    require_choice(method, "method", get_args(LabelMethod))
    require_count(batch, "batch size")
    layer = output_layer_of(task.model)
    _require_fit(task, layer, grads)
    if method == "auto":
        method = "idlg" if batch == 1 else "counts"
    require(
        method != "idlg" or batch == 1,
        f'batch size is {batch}; method "idlg" expects 1; use "counts"',
    )
    if like is None and record is not None and rng is not None:
        noise = torch.from_numpy(rng.standard_normal((1, NOISE, *record)))
        like = noise.to(next(iter(params.values())))
    slopes = Slopes.of(task, params, layer, like)
    if method == "counts":
        if like is None:
            raise InputError(_NO_STAND_IN)
        if signs and slopes.is_plain:
            expected = expectation(task, params, layer, like)
            by_signs = counts_by_signs(grads, layer, batch, expected)
            return LabelGuess(_labels(by_signs, batch), method, by_signs)
        counted = _counted(slopes, params, grads, batch, like)
        return LabelGuess(_labels(counted.counts, batch), method, counted.counts, counted.residual)
    by_sign = slopes.is_plain or slopes.show_the_label_by_sign()
    if method == "idlg":
        labels = (idlg(grads, layer) if by_sign else slopes.labels(grads))[:, None]
    else:
        require(by_sign, _NO_SIGN)
        labels = gradinversion(grads, layer, batch)
    return LabelGuess(labels, method, _histogram(labels, grads[layer.weight].shape[1]))


def _counted(slopes: Slopes, params: Params, grads: Grads, batch: int, like: Tensor) -> Counted:
    """Return the number of records of each class, in closed form where one exists."""
    expected = expectation(slopes.task, params, slopes.layer, like)
    if slopes.is_plain:
        return counts(grads, slopes.layer, batch, expected)
    return slopes.counts(grads, params, batch, like, expected)


def label_accuracy(guess: Tensor, truth: Tensor) -> Tensor:
    """Return the share of correct labels ``[T]`` among ``[T, B]`` int64, without regard to order.

    >>> label_accuracy(torch.tensor([[0, 0, 1]]), torch.tensor([[1, 0, 2]]))
    tensor([0.6667])
    """
    require(
        guess.shape == truth.shape,
        f"the guessed labels are {list(guess.shape)}, the true ones {list(truth.shape)}; expected "
        "equal shapes",
    )
    classes = int(max(guess.max(), truth.max())) + 1
    shared = torch.minimum(_histogram(guess, classes), _histogram(truth, classes))
    return shared.sum(dim=1) / guess.shape[1]


def _require_fit(task: Task, layer: OutputLayer, grads: Grads) -> None:
    for name in (layer.weight, *([] if layer.bias is None else [layer.bias])):
        require(name in grads, f"{name!r}, the last layer, has no gradient; pass the labels")
        wanted = list(task.model.get_parameter(name).shape)
        require(
            list(grads[name].shape[1:]) == wanted,
            f"the gradient of {name!r} is {list(grads[name].shape)}; expected T of {wanted}",
        )
        require(
            wanted[0] > 1,
            f"{type(task.model).__name__} has one output, which distinguishes no classes; pass the "
            "labels (as known)",
        )


def _labels(counted: Tensor, batch: int) -> Tensor:
    """Return counts ``[T, C]`` as labels ``[T, B]``, ascending."""
    classes = torch.arange(counted.shape[1], device=counted.device)
    return torch.stack([classes.repeat_interleave(row) for row in counted]).reshape(-1, batch)


def _histogram(labels: Tensor, classes: int) -> Tensor:
    """Return the number of occurrences of each class ``[T, C]`` in ``labels [T, B]``."""
    histogram = torch.zeros(len(labels), classes, dtype=torch.int64, device=labels.device)
    return histogram.scatter_add_(1, labels, torch.ones_like(labels))
