"""Stacks of convolutions with a fully connected head.

Each function takes images ``[channels, side, side]`` with ``side`` pixels, and the number of
``classes``, which are the head's outputs (logits). ``generator`` draws the first weights by
PyTorch's scheme. A side too small for the poolings or strides raises ``InputError``.
"""

from collections.abc import Sequence
from math import ceil

import torch
from torch import Generator, nn
from torch.nn import Sequential

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise
from leakgauge.models.perceptron import linear_layers

POOLED = 3
"""The networks of Mo et al. and Li et al. halve the image behind their last three convolutions."""

WIDTHS = (64, 192, 384, 256, 256)
SMALL = (32, 64, 96, 64, 64)
"""Channels of the five convolutions of ``alexnet_cifar``."""


def alexnet(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return three convolutions, each with a pooling, and two linear layers.

    This is the AlexNet of Mo et al., which differs much from Krizhevsky's; ``alexnet_cifar`` is
    nearer to it. It needs 8 pixels or more.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 5.

    >>> model = alexnet(3, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(5, 3, 32, 32)).shape)
    [5, 2]
    """
    return _stack((channels, 16, 32, 64), (256, classes), side, generator)


def vgg11(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return eight convolutions, the last three with a pooling, and three linear layers.

    It needs 8 pixels or more.

    References:
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 5.

    >>> model = vgg11(3, 2, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(5, 3, 32, 32)).shape)
    [5, 2]
    """
    widths = (channels, 16, 16, 16, 16, 32, 32, 64, 64)
    return _stack(widths, (256, 128, classes), side, generator)


def cnn_ccs24(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return three 5 x 5 convolutions, each with a max-pooling, and two linear layers.

    The convolutions have 8, 16 and 64 channels; the hidden linear layer has 16 values. The network
    needs 8 pixels or more.

    The paper states only the number of parameters of its network for 32 x 32 colour faces and two
    classes: 45,922. The layers are ours. We searched one to five convolutions with a common kernel
    of 3 x 3 or 5 x 5, a pooling behind each and channels that do not shrink, up to two hidden
    linear layers that do not grow, and widths that are powers of two from 8 on: no other network
    among these has that number. Three classes (UTKFace) get the same body: 45,939 parameters.

    References:
        Li et al., CCS 2024, section 5.1.3.

    >>> model = cnn_ccs24(3, 2, generator=torch.Generator().manual_seed(0))
    >>> sum(leaf.numel() for leaf in model.parameters())
    45922
    """
    return _stack((channels, 8, 16, 64), (16, classes), side, generator, kernel=5)


def cnn(channels: int, classes: int, side: int = 32, *, generator: Generator) -> Sequential:
    """Return three 3 x 3 convolutions that each halve the image, and a linear head.

    It needs 8 pixels or more.

    >>> model = cnn(1, 10, 28, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(3, 1, 28, 28)).shape)
    [3, 10]
    """
    require(side >= 8, f"side is {side}; expected at least 8 pixels")
    return _strided(channels, ((16, 2), (32, 2), (32, 2)), classes, side, generator)


def slim(
    channels: int, classes: int, side: int = 32, width: int = 48, *, generator: Generator
) -> Sequential:
    """Return three 3 x 3 convolutions of strides 1, 2 and 2 without normalisation, and a head.

    Each convolution has ``width`` channels. The network needs 4 pixels or more.

    >>> model = slim(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 10]
    """
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    return _strided(channels, ((width, 1), (width, 2), (width, 2)), classes, side, generator)


def alexnet_cifar(
    channels: int,
    classes: int,
    side: int = 32,
    *,
    widths: tuple[int, ...] = WIDTHS,
    generator: Generator,
) -> Sequential:
    """Return five convolutions with three poolings, and a linear head.

    This variant of AlexNet is the one on which membership inference is measured. The first
    convolution is 11 x 11 with stride 4, as in the public CIFAR models that the paper uses; 32 x 32
    pixels leave one at the end. With ``SMALL`` widths it is 5 x 5 with stride 1.

    References:
        Krizhevsky et al., NeurIPS 2012; Nasr et al., IEEE S&P 2019, section III-B.

    >>> model = alexnet_cifar(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape), sum(p.numel() for p in model.parameters())
    ([2, 10], 2472266)
    """
    first = (5, 1) if widths == SMALL else (11, 4)
    layers: list[nn.Module] = []
    with torch.device("meta"):
        width = channels
        for place, wide in enumerate(widths):
            kernel, stride = (first, (5, 1), (3, 1), (3, 1), (3, 1))[place]
            layers += [nn.Conv2d(width, wide, kernel, stride, kernel // 2), nn.ReLU()]
            if place in (0, 1, 4):
                layers.append(nn.MaxPool2d(2, ceil_mode=True))
            width = wide
        left = ceil(ceil(side / first[1]) / 8)  # pixels along an axis behind the last pooling
        layers += [nn.Flatten(), nn.Linear(width * left * left, classes)]
    return initialise(Sequential(*layers), generator=generator)


def _stack(
    channels: Sequence[int],
    head: tuple[int, ...],
    side: int,
    generator: Generator,
    *,
    kernel: int = 3,
) -> Sequential:
    """Return a network with convolutions and linear layers of these widths."""
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
        width = channels[-1] * side * side
        layers += [nn.Flatten(), *linear_layers(width, head[-1], head[:-1])]
    return initialise(Sequential(*layers), generator=generator)


def _strided(
    width: int,
    convolutions: Sequence[tuple[int, int]],
    classes: int,
    side: int,
    generator: Generator,
) -> Sequential:
    """Return 3 x 3 convolutions, each given by (channels, stride), and a linear head."""
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for wide, stride in convolutions:
            layers += [nn.Conv2d(width, wide, 3, stride, padding=1), nn.ReLU()]
            width, side = wide, (side - 1) // stride + 1
        layers += [nn.Flatten(), nn.Linear(width * side * side, classes)]
    return initialise(Sequential(*layers), generator=generator)
