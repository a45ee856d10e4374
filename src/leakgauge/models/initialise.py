"""PyTorch's default weights, drawn from a generator that is passed in."""

import math
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def initialise(model: Model, *, generator: torch.Generator) -> Model:
    """Give a model of the ``meta`` device its weights, on the generator's device.

    Every linear and convolutional layer is drawn from U(-1/sqrt(f), 1/sqrt(f)), f its fan-in, as
    PyTorch does; made on ``meta``, a module draws nothing from the global randomness.

    >>> model = initialise(nn.Linear(4, 2, device="meta"), generator=torch.Generator())
    >>> bool(model.weight.abs().max() <= 0.5)
    True
    """
    model = model.to_empty(device=generator.device)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            bound = 1 / math.sqrt(module.weight[0].numel())
            with torch.no_grad():
                for value in module.parameters(recurse=False):
                    value.uniform_(-bound, bound, generator=generator)
    return model
