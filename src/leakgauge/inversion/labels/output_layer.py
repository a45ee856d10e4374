"""The output layer of a model, and its mean predictions before any label is known."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.core.checks import require
from leakgauge.core.types import Params, Task
from leakgauge.gradients.probing import private, trainable
from leakgauge.gradients.walk import LINEAR, walk

NOISE = 256
"""Number of records of noise that stand in for public ones."""

CHUNK = 256
"""Number of records in one forward pass."""


@dataclass(frozen=True)
class OutputLayer:
    """The last linear layer of a model.

    Attributes:
        module: its name in the model; empty where it is the model.
        weight: name of its weight ``[C, D]`` among the parameters.
        bias: name of its bias ``[C]``, or None.
    """

    module: str
    weight: str
    bias: str | None


@dataclass(frozen=True, eq=False)
class Expected:
    """A model's mean outputs on records like the private ones.

    T is the number of targets, or 1 where one expectation serves all.

    Attributes:
        prediction: mean softmax ``[T, C]``.
        feature: mean input h of the last linear layer ``[T, D]``.
        product: mean of p h ``[T, C, D]``.
    """

    prediction: Tensor
    feature: Tensor
    product: Tensor


def output_layer_of(model: nn.Module) -> OutputLayer:
    """Return the ``nn.Linear`` that was registered last, taken for the layer that gives the logits.

    Raises:
        InputError: there is none.

    >>> output_layer_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))).weight
    '2.weight'
    """
    layers = [one for one in walk(Task(model), frozen=True) if one.kind == LINEAR]
    require(
        bool(layers),
        f"{type(model).__name__} has no nn.Linear to read labels from; pass the labels (as known)",
    )
    last = layers[-1]
    weight, *bias = last.parameters
    return OutputLayer(last.name, weight, next(iter(bias), None))


def expectation(task: Task, params: Params, layer: OutputLayer, like: Tensor) -> Expected:
    """Return the model's mean outputs on records that may be like the private ones.

    Args:
        task: its model runs on a private copy, in its own mode.
        params: all trainable parameters by name.
        layer: from ``output_layer_of``.
        like: ``[T, n, ...]``, or ``[1, n, ...]`` for all targets: public records, the current
            reconstruction, or noise.

    Raises:
        InputError: the model's outputs are not the logits ``[n, C]`` of its last linear layer.
    """
    logits, feature = outputs_and_inputs(task, params, layer, like)
    p = logits.softmax(dim=1).reshape(*like.shape[:2], -1)
    h = feature.reshape(*like.shape[:2], -1)
    product = torch.einsum("tnc,tnd->tcd", p, h) / like.shape[1]
    return Expected(p.mean(dim=1), h.mean(dim=1), product)


def outputs_and_inputs(
    task: Task, params: Params, layer: OutputLayer, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the logits ``[n, C]`` of records ``like [T, n / T, ...]``, and the layer's inputs.

    Raises:
        InputError: as ``expectation``.
    """
    model = private(task, trainable(task.model, params)).model
    inputs: list[Tensor] = []
    model.get_submodule(layer.module).register_forward_pre_hook(
        lambda _, given: inputs.append(given[0])
    )
    with torch.no_grad():
        logits = torch.cat([model(part) for part in torch.split(like.flatten(0, 1), CHUNK)])
    feature = torch.cat(inputs)
    outputs, width = model.get_parameter(layer.weight).shape
    wanted = [[len(logits), outputs], [len(logits), width]]
    require(
        [list(logits.shape), list(feature.shape)] == wanted,
        f"{layer.module or 'the model'!r} turns {list(feature.shape)} into outputs "
        f"{list(logits.shape)}; expected {wanted[0]}, one score for each class and record; "
        "pass the labels (as known)",
    )
    return logits, feature


def noise_records(record: tuple[int, ...], rng: np.random.Generator, like: Tensor) -> Tensor:
    """Return standard normal noise ``[1, NOISE, *record]`` of the type and device of ``like``."""
    return torch.from_numpy(rng.standard_normal((1, NOISE, *record))).to(like)
