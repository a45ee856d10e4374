"""Methods that infer the labels of a batch from the gradient of the output layer.

They are for the mean cross entropy of the logits of the last linear layer; ``slopes`` tries the
loss out and has methods for others. With predictions p_i, one-hot labels y_i and inputs h_i of that
layer, the gradients are the means over the batch of ``p_i - y_i`` (bias) and of
``(p_i - y_i) h_i`` (weight, one row a class).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from leakgauge.core.checks import require, require_count
from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients.probing import private, trainable
from leakgauge.gradients.walk import LINEAR, is_linear, walk

NOISE = 256
"""Number of noise records that replace public ones."""

CHUNK = 256
"""Largest number of records in one forward pass."""


@dataclass(frozen=True)
class OutputLayer:
    """The last linear layer of a model.

    Attributes:
        module: name of the layer in the model; empty if it is the model.
        weight: name of its weight ``[C, D]`` among the parameters.
        bias: name of its bias ``[C]``, or None.
    """

    module: str
    weight: str
    bias: str | None


@dataclass(frozen=True, eq=False)
class Expected:
    """A model's mean outputs on records like the private ones.

    T is the number of targets, or 1 if they share one expectation.

    Attributes:
        prediction: mean softmax ``[T, C]``.
        feature: mean input h of the last linear layer ``[T, D]``.
        product: mean of p h ``[T, C, D]``.
    """

    prediction: Tensor
    feature: Tensor
    product: Tensor

    def along_feature(self, values: Tensor) -> Tensor:
        """Return values ``[T, k, D]`` along the mean input, relative to its length ``[T, k]``."""
        feature = self.feature.double()
        length = feature.square().sum(dim=1, keepdim=True)
        require(
            bool((length > 0).all()),
            "the last layer has no bias and a mean input of zero, so labels cannot be counted; "
            "pass the labels (as known)",
        )
        return torch.einsum("tcd,td->tc", values, feature.expand(len(values), -1)) / length


def output_layer_of(model: nn.Module) -> OutputLayer:
    """Return the ``nn.Linear`` that was registered last, which is assumed to give the logits.

    Raises:
        InputError: the model has no ``nn.Linear``, or the last one shares its weight.

    >>> output_layer_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))).weight
    '2.weight'
    """
    layers = [one for one in walk(Task(model), frozen=True) if one.kind == LINEAR]
    require(
        bool(layers),
        f"{type(model).__name__} has no nn.Linear to read labels from; pass the labels (as known)",
    )
    last = layers[-1]
    require(
        is_linear(model.get_submodule(last.name)),
        f"the last nn.Linear {last.name!r} makes its weight from others (a parametrisation), so no "
        "gradient of it is sent; pass the labels (as known)",
    )
    weight, *bias = last.parameters
    own = model.get_submodule(last.name).weight
    named = model.named_parameters(remove_duplicate=False)
    shared = [name for name, leaf in named if leaf is own]
    require(
        len(shared) == 1,
        f"the last nn.Linear {last.name!r} shares its weight ({', '.join(shared)}), so that "
        "gradient is not of the outputs alone; pass the labels (as known)",
    )
    return OutputLayer(last.name, weight, next(iter(bias), None))


def expectation(task: Task, params: Params, layer: OutputLayer, like: Tensor) -> Expected:
    """Return the model's mean outputs on records like the private ones.

    Args:
        task: task; a private copy of its model runs, in the same mode.
        params: all trainable parameters by name.
        layer: result of ``output_layer_of``.
        like: ``[T, n, ...]``, or ``[1, n, ...]`` for all targets: public records, the current
            reconstruction, or noise.

    Raises:
        InputError: the model's outputs are not the logits ``[n, C]`` of its last linear layer.
    """
    seen = outputs_and_inputs(task, params, layer, like)
    p = seen.logits.softmax(dim=1).reshape(*like.shape[:2], -1)
    h = seen.feature.reshape(*like.shape[:2], -1)
    product = torch.einsum("tnc,tnd->tcd", p, h) / like.shape[1]
    return Expected(p.mean(dim=1), h.mean(dim=1), product)


@dataclass(frozen=True, eq=False)
class LayerSeen:
    """What a model does with n records at its last linear layer.

    Attributes:
        logits: outputs of the model ``[n, C]``.
        outputs: outputs of the layer ``[n, C]``.
        feature: its inputs ``[n, D]``.
    """

    logits: Tensor
    outputs: Tensor
    feature: Tensor


def outputs_and_inputs(task: Task, params: Params, layer: OutputLayer, like: Tensor) -> LayerSeen:
    """Return the logits of records ``like [T, n / T, ...]``, and the layer's outputs and inputs.

    Raises:
        InputError: see ``expectation``.
    """
    own, records = private(task, trainable(task.model, params)), like.flatten(0, 1)
    with torch.no_grad():  # before the hooks, as it may run the model
        pairs = [own.paired(part) for part in torch.split(records, CHUNK)]
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    behind: list[str] = []
    last = own.model.get_submodule(layer.module)

    def keep(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        inputs.append(given[0])
        outputs.append(output)
        behind.clear()

    last.register_forward_hook(keep)
    for name, part in own.model.named_modules():
        if part is not last and any(True for _ in part.parameters(recurse=False)):
            part.register_forward_pre_hook(lambda *_, name=name: behind.append(name))
    with torch.no_grad():
        logits = torch.cat([own.outputs(pair) for pair in pairs])[: len(records)]
    # a single record at the end runs in a pair, of which the first counts
    feature, seen = (torch.cat(each)[: len(records)] for each in (inputs, outputs))
    classes, width = own.model.get_parameter(layer.weight).shape
    wanted = [[len(logits), classes], [len(logits), width]]
    require(
        [list(logits.shape), list(feature.shape)] == wanted,
        f"{layer.module or 'the model'!r} turns {list(feature.shape)} into outputs "
        f"{list(logits.shape)}; expected {wanted[0]}, one score for each class and record; "
        "pass the labels (as known)",
    )
    require(
        not behind,
        f"{behind[-1] if behind else ''!r} runs after {layer.module!r}, the last nn.Linear, so "
        "that does not give the outputs; pass the labels (as known)",
    )
    return LayerSeen(logits, seen, feature)


@dataclass(frozen=True, eq=False)
class Counted:
    """Counts of labels, and how far the gradient is from whole numbers.

    Attributes:
        counts: records of each class ``[T, C]``, int64.
        residual: largest distance of a class's count from a whole number ``[T]``, in records: 0
            where the stand-ins predict as the private records do. From 0.5 on the gradient does not
            determine the counts.
    """

    counts: Tensor
    residual: Tensor

    @classmethod
    def nearest(cls, wanted: Tensor, total: int, near: Tensor | None = None) -> "Counted":
        """Return the counts nearest to ``near``, by default ``wanted [T, C]`` as measured."""
        found = nearest_counts(wanted if near is None else near, total)
        return cls(found, (wanted - found).abs().amax(dim=1))


TIE = 1e-4
"""Largest relative difference of rows that point away from the rest equally."""


def idlg(grads: Grads, layer: OutputLayer) -> Tensor:
    """Return the label of each of T single records ``[T]``, int64.

    For one record the gradient of the bias is p - y, negative only at the label. Without a bias
    the rows of the weight's gradient are ``(p_c - y_c) h``: the label's row points away from all
    others, for any sign of h. With two classes, or if all of p is on one wrong class, two rows
    point away from each other equally; then the label is the row with the smallest sum, which
    assumes that h is 0 or more, as after a ReLU or sigmoid.

    Args:
        grads: gradients of one record each, leaf ``[T, *p]``.
        layer: result of ``output_layer_of``.

    Raises:
        InputError: the gradient of the last layer is missing, zero or not finite.

    References:
        Zhao, Mopuri and Bilen, iDLG: Improved Deep Leakage from Gradients, 2020.

    >>> grads = {"weight": torch.zeros(1, 3, 2), "bias": torch.tensor([[0.2, -0.7, 0.5]])}
    >>> idlg(grads, OutputLayer("", "weight", "bias"))
    tensor([1])
    """
    if layer.bias is not None:
        return gradient_of(grads, layer.bias, 2).argmin(dim=1)
    weight = gradient_of(grads, layer.weight, 3)
    own = weight.square().sum(dim=2)
    away = torch.einsum("tcd,td->tc", weight, weight.sum(dim=1)) - own
    near = away <= away.amin(dim=1, keepdim=True) * (1 - TIE)
    return torch.where(near, weight.sum(dim=2), torch.inf).argmin(dim=1)


def gradinversion(grads: Grads, layer: OutputLayer, batch: int) -> Tensor:
    """Return the labels ``[T, B]`` of batches in which no label occurs twice: int64, ascending.

    The labels are the B classes with the smallest minimum in their row of the weight's gradient.
    This assumes that the inputs of the last layer are 0 or more, as after a ReLU.

    The arguments are those of ``idlg``, for batches of B = ``batch`` records.

    Raises:
        InputError: there are fewer classes than records; also see ``idlg``.

    References:
        Yin et al., See through Gradients: Image Batch Recovery via GradInversion, CVPR 2021,
        section 3.2.

    >>> weight = torch.tensor([[[0.1, 0.2], [-0.9, 0.3], [0.1, -0.4]]])
    >>> gradinversion({"weight": weight}, OutputLayer("", "weight", None), 2)
    tensor([[1, 2]])
    """
    require_count(batch, "batch size")
    weight = gradient_of(grads, layer.weight, 3)
    require(
        batch <= weight.shape[1],
        f"{batch} records have a label twice where there are {weight.shape[1]} classes; "
        'expected no duplicates; use method="counts"',
    )
    # Stable: absent classes tie at 0 if a unit is off for the whole batch.
    order = weight.amin(dim=2).argsort(dim=1, stable=True)
    return order[:, :batch].sort(dim=1).values


def counts(grads: Grads, layer: OutputLayer, batch: int, expected: Expected) -> Counted:
    """Return the number of records of each class in each of T batches.

    The gradient of the bias is the mean prediction less the share of each class, so
    ``n_c = B (mean p_c - g_c)``. Without a bias the weight's gradient is projected on the mean
    input of the layer: ``n_c = B <mean p_c h - G_c, mean h> / |mean h|^2``, which assumes that
    this mean is the same for every class. The result is the nearest whole numbers of 0 or more, in
    squares, that add up to B: largest remainders, if no count is negative.

    The arguments are those of ``idlg``, for batches of B = ``batch`` records, and the result of
    ``expectation`` for records like the private ones.

    Raises:
        InputError: the last layer has no bias and its mean input is zero; also see ``idlg``.

    >>> grads = {"bias": torch.tensor([[-0.5, 0.25, 0.25]])}
    >>> flat = Expected(torch.full((1, 3), 1 / 3), torch.zeros(1, 1), torch.zeros(1, 3, 1))
    >>> found = counts(grads, OutputLayer("", "weight", "bias"), 4, flat)
    >>> found.counts, found.residual.round(decimals=3).tolist()
    (tensor([[4, 0, 0]]), [0.667])
    """
    require_count(batch, "batch size")
    if layer.bias is not None:
        share = expected.prediction.double() - gradient_of(grads, layer.bias, 2).double()
    else:
        weight = gradient_of(grads, layer.weight, 3).double()
        share = expected.along_feature(expected.product.double() - weight)
    return Counted.nearest(batch * share, batch)


def nearest_counts(wanted: Tensor, total: int) -> Tensor:
    """Return the counts ``[T, C]`` nearest to ``wanted [T, C]`` whose sum is ``total``.

    They are whole numbers from 0, int64, and nearest in squares. Raising a count from k to k + 1
    gains ``2 (wanted - k) - 1``, ever less, so the ``total`` largest gains are the best choice.

    >>> nearest_counts(torch.tensor([[2.6, 1.7, -0.3]]), 4)
    tensor([[2, 2, 0]])
    """
    gains = wanted[..., None] - torch.arange(total, device=wanted.device)
    raised = gains.flatten(1).topk(total, dim=1).indices // total
    nearest = torch.zeros(wanted.shape, dtype=torch.int64, device=wanted.device)
    return nearest.scatter_add_(1, raised, torch.ones_like(raised))


def gradient_of(grads: Grads, name: str, axes: int, *, may_be_zero: bool = False) -> Tensor:
    """Return the stack called ``name``; refuse it unless it is finite, and not zero."""
    require(name in grads, f"{name!r}, the last layer, has no gradient; pass the labels")
    leaf = grads[name]
    require(
        leaf.dim() == axes,
        f"the gradient of {name!r} is {list(leaf.shape)}; expected {axes} axes, T the first",
    )
    require(bool(leaf.isfinite().all()), f"the gradient of {name!r} is not finite everywhere")
    present = may_be_zero or bool(leaf.flatten(1).any(dim=1).all())
    require(present, f"the gradient of {name!r} is all zero, so it shows no label")
    return leaf
