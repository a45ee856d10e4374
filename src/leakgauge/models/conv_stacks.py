"""Stacks of 3 x 3 convolutions with a fully connected head, by which layers are compared."""

from collections.abc import Sequence

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise

POOLED = 3
"""Both networks halve the image behind each of their last three convolutions."""


def alexnet(
    channels: int, classes: int, side: int = 32, *, generator: torch.Generator
) -> nn.Sequential:
    """Return three convolutions, each with a pooling, and two linear layers.

    This is the AlexNet of Mo et al., which has little of Krizhevsky's; ``alexnet_cifar`` is nearer
    to it.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 8.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 8.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 5.

    >>> model = alexnet(3, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(5, 3, 32, 32)).shape)
    [5, 2]
    """
    return _stack((channels, 16, 32, 64), (256, classes), side, generator)


def vgg11(
    channels: int, classes: int, side: int = 32, *, generator: torch.Generator
) -> nn.Sequential:
    """Return eight convolutions, of which the last three have a pooling, and three linear layers.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 8.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 8.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 5.

    >>> model = vgg11(3, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(5, 3, 32, 32)).shape)
    [5, 2]
    """
    widths = (channels, 16, 16, 16, 16, 32, 32, 64, 64)
    return _stack(widths, (256, 128, classes), side, generator)


def _stack(
    channels: Sequence[int], head: Sequence[int], side: int, generator: torch.Generator
) -> nn.Sequential:
    """Return the network whose convolutions and linear layers have these widths."""
    require(side >= 2**POOLED, f"side is {side}; expected at least {2**POOLED} pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        convolutions = len(channels) - 1
        for place in range(convolutions):
            layers += [nn.Conv2d(channels[place], channels[place + 1], 3, padding=1), nn.ReLU()]
            if place >= convolutions - POOLED:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        layers.append(nn.Flatten())
        width = channels[-1] * side * side
        for wide in head:
            layers += [nn.Linear(width, wide), nn.ReLU()]
            width = wide
    return initialise(nn.Sequential(*layers[:-1]), generator=generator)
