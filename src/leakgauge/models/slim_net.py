"""A slim convolutional network without normalisation."""

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise


def slim(
    channels: int,
    classes: int,
    side: int = 32,
    width: int = 48,
    *,
    generator: torch.Generator,
) -> nn.Sequential:
    """Return three 3 x 3 convolutions with ReLUs, of strides 1, 2 and 2, and a linear head.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 4.
        width: channels of each convolution.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 4.

    >>> model = slim(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 10]
    """
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for width_in, stride in ((channels, 1), (width, 2), (width, 2)):
            layers += [nn.Conv2d(width_in, width, 3, stride, padding=1), nn.ReLU()]
            side = (side - 1) // stride + 1
        layers += [nn.Flatten(), nn.Linear(width * side * side, classes)]
    return initialise(nn.Sequential(*layers), generator=generator)
