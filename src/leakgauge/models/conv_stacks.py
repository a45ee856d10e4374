"""Stacks of convolutions with a fully connected head."""

from collections.abc import Sequence

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise

POOLED = 3
"""Every network halves the image behind each of its last three convolutions."""


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


def cnn_ccs24(
    channels: int, classes: int, side: int = 32, *, generator: torch.Generator
) -> nn.Sequential:
    """Return three 5 x 5 convolutions, each with a max-pooling, and two linear layers.

    The convolutions have 8, 16 and 64 channels; the hidden linear layer has 16 values.

    The paper states of its network for 32 x 32 colour faces and two classes only how many
    parameters it has: 45,922. The layers are ours: of one to five convolutions with a common
    kernel of 3 x 3 or 5 x 5 and a pooling behind each, channels that do not shrink, and up to two
    hidden linear layers that do not grow, where all widths are powers of two from 8 on, no other
    network has that number. Three classes (UTKFace) get the same body: 45,939 parameters.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 8.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 8.

    References:
        Li et al., CCS 2024, section 5.1.3.

    >>> model = cnn_ccs24(3, 2, generator=torch.Generator().manual_seed(0))
    >>> sum(leaf.numel() for leaf in model.parameters())
    45922
    """
    return _stack((channels, 8, 16, 64), (16, classes), side, generator, kernel=5)


def _stack(
    channels: Sequence[int],
    head: Sequence[int],
    side: int,
    generator: torch.Generator,
    *,
    kernel: int = 3,
) -> nn.Sequential:
    """Return the network whose convolutions and linear layers have these widths."""
    require(side >= 2**POOLED, f"side is {side}; expected at least {2**POOLED} pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        convolutions = len(channels) - 1
        for place in range(convolutions):
            widths = channels[place], channels[place + 1]
            layers += [nn.Conv2d(*widths, kernel, padding=kernel // 2), nn.ReLU()]
            if place >= convolutions - POOLED:
                layers.append(nn.MaxPool2d(2))
                side //= 2
        layers.append(nn.Flatten())
        width = channels[-1] * side * side
        for wide in head:
            layers += [nn.Linear(width, wide), nn.ReLU()]
            width = wide
    return initialise(nn.Sequential(*layers[:-1]), generator=generator)
