"""A small convolutional network for square images."""

import torch
from torch import nn

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise


def cnn(
    channels: int, classes: int, side: int = 32, *, generator: torch.Generator
) -> nn.Sequential:
    """Return three convolutions, each of which halves the image, and a linear head.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 8.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: ``side`` is below 8.

    >>> model = cnn(1, 10, 28, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(3, 1, 28, 28)).shape)
    [3, 10]
    """
    require(side >= 8, f"side is {side}; expected at least 8 pixels")
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for width_in, width_out in ((channels, 16), (16, 32), (32, 32)):
            layers += [nn.Conv2d(width_in, width_out, 3, stride=2, padding=1), nn.ReLU()]
            side = (side + 1) // 2
        layers += [nn.Flatten(), nn.Linear(32 * side * side, classes)]
    return initialise(nn.Sequential(*layers), generator=generator)
