"""Fully connected networks for tables."""

import itertools

import torch
from torch import nn

from leakgauge.models.initialisation import initialise


def mlp(
    inputs: int, classes: int, hidden: tuple[int, ...] = (100,), *, generator: torch.Generator
) -> nn.Sequential:
    """Return a fully connected network: ReLU layers and a linear head.

    Args:
        inputs: the number of features of a record.
        classes: outputs of the head (logits).
        hidden: width of each hidden layer.
        generator: draws the first weights by PyTorch's scheme.

    >>> model = mlp(5, 2, (8, 4), generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(3, 5)).shape)
    [3, 2]
    """
    layers: list[nn.Module] = []
    widths = (inputs, *hidden)
    with torch.device("meta"):
        for width_in, width_out in itertools.pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        layers.append(nn.Linear(widths[-1], classes))
    return initialise(nn.Sequential(*layers), generator=generator)
