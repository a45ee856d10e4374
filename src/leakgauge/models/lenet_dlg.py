"""The LeNet of "Deep Leakage from Gradients"."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise

_WIDTH = 12


def lenet(channels: int, classes: int, side: int, *, generator: torch.Generator) -> nn.Sequential:
    """Return three 5 x 5 convolutions of 12 channels with sigmoids, and a linear head.

    The strides are 2, 2 and 1. The papers draw its weights from U(-0.5, 0.5):
    ``initialise(model, "wide-uniform", generator=...)``.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 4.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 4.

    References:
        Zhu et al., "Deep Leakage from Gradients", NeurIPS 2019, and its published code.

    >>> model = lenet(1, 10, 28, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(3, 1, 28, 28)).shape)
    [3, 10]
    """
    return plain_stack((2, 2, 1), channels, classes, side, bend=nn.Sigmoid, generator=generator)


def plain_stack(
    strides: Sequence[int],
    channels: int,
    classes: int,
    side: int,
    *,
    bend: Callable[[], nn.Module],
    generator: torch.Generator,
) -> nn.Sequential:
    """Return 5 x 5 convolutions of 12 channels, one for each stride, and a linear head.

    Args:
        strides: of the convolutions.
        channels: as for ``lenet``; so are the others.
        classes: outputs.
        side: height and width.
        bend: makes the activation behind each convolution.
        generator: draws the first weights.

    Raises:
        InputError: ``side`` is below 4.

    >>> one = torch.Generator().manual_seed(0)
    >>> stack = plain_stack((2, 1), 3, 10, 32, bend=nn.Sigmoid, generator=one)
    >>> [type(layer).__name__ for layer in stack]
    ['Conv2d', 'Sigmoid', 'Conv2d', 'Sigmoid', 'Flatten', 'Linear']
    """
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for width_in, stride in zip((channels, *[_WIDTH] * len(strides)), strides, strict=False):
            layers += [nn.Conv2d(width_in, _WIDTH, 5, stride, padding=2), bend()]
            side = (side - 1) // stride + 1
        layers += [nn.Flatten(), nn.Linear(_WIDTH * side * side, classes)]
    return initialise(nn.Sequential(*layers), generator=generator)
