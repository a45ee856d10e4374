"""Fully connected networks."""

import itertools

import torch
from torch import Generator, nn
from torch.nn import Sequential

from leakgauge.models.initialisation import initialise

FCNET = (32,) * 8
"""Widths of the hidden layers of ``fcnet``."""


def mlp(
    inputs: int, classes: int, hidden: tuple[int, ...] = (100,), *, generator: Generator
) -> Sequential:
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
    layers = linear_layers(inputs, classes, hidden)
    return initialise(Sequential(*layers), generator=generator)


def fcnet(inputs: int, classes: int, *, generator: Generator) -> Sequential:
    """Return nine linear layers of width 32 (except the last), for images and for tables.

    Args:
        inputs: number of values of a record, which may have any shape.
        classes: outputs of the head (logits).
        generator: draws the first weights by PyTorch's scheme.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 5.

    >>> model = fcnet(3 * 8 * 8, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(5, 3, 8, 8)).shape)
    [5, 2]
    """
    return Sequential(nn.Flatten(), *mlp(inputs, classes, FCNET, generator=generator))


def linear_layers(inputs: int, outputs: int, hidden: tuple[int, ...]) -> list[nn.Module]:
    """Return linear layers with ReLUs between them, on the ``meta`` device."""
    widths = (inputs, *hidden, outputs)
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for width_in, width_out in itertools.pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return layers[:-1]
