"""AlexNet for images of 32 x 32 pixels, in the variant that membership inference is measured on."""

from math import ceil

import torch
from torch import nn

from leakgauge.models.initialisation import initialise

WIDTHS = (64, 192, 384, 256, 256)
SMALL = (32, 64, 96, 64, 64)
"""Channels of the five convolutions."""


def alexnet_cifar(
    channels: int,
    classes: int,
    side: int = 32,
    *,
    widths: tuple[int, ...] = WIDTHS,
    generator: torch.Generator,
) -> nn.Sequential:
    """Return five convolutions with three poolings, and a linear head.

    The first convolution is 11 x 11 with stride 4, as in the public CIFAR models that the paper
    uses; 32 x 32 pixels leave one at the end. With ``SMALL`` widths it is 5 x 5 with stride 1.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels.
        widths: channels of the convolutions.
        generator: draws the first weights by PyTorch's scheme.

    References:
        Krizhevsky et al., NeurIPS 2012; Nasr et al., IEEE S&P 2019, section III-B.

    >>> model = alexnet_cifar(3, 10, generator=torch.Generator().manual_seed(0))
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape), sum(p.numel() for p in model.parameters())
    ([2, 10], 2472266)
    """
    one, two, three, four, five = widths
    kernel, stride = (5, 1) if widths == SMALL else (11, 4)
    with torch.device("meta"):
        features = [
            nn.Conv2d(channels, one, kernel, stride, kernel // 2),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(one, two, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Conv2d(two, three, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(three, four, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(four, five, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
        ]
        left = _left(side, stride)
        head = nn.Linear(five * left * left, classes)
    return initialise(nn.Sequential(*features, head), generator=generator)


def _left(side: int, stride: int) -> int:
    """Pixels along an axis behind the last pooling."""
    return ceil(ceil(side / stride) / 8)
