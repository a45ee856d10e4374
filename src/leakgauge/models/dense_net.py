"""DenseNet-BC for images of 32 x 32 pixels."""

import torch
from torch import Generator, Tensor, nn
from torch.nn import Sequential, functional

from leakgauge.core.checks import require
from leakgauge.models.initialisation import initialise


class DenseBottleneck(nn.Module):
    """Adds ``growth`` channels to its inputs."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return inputs and new channels ``[n, channels + growth, h, w]``."""
        inner = self.conv1(functional.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(functional.relu(self.norm2(inner)))], dim=1)


class Transition(nn.Sequential):
    """Halves the channels and the image."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels // 2, 1, bias=False),
            nn.AvgPool2d(2),
        )


def densenet(
    channels: int,
    classes: int,
    side: int = 32,
    *,
    depth: int = 100,
    growth: int = 12,
    generator: Generator,
) -> Sequential:
    """Return a DenseNet-BC: three dense blocks with transitions, and a linear head.

    Args:
        channels: channels of an image ``[channels, side, side]``.
        classes: outputs of the head (logits).
        side: height and width in pixels, at least 4.
        depth: number of layers, 6 k + 4.
        growth: channels that each layer adds.
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: the depth or the side is not allowed.

    References:
        Huang et al., Densely connected convolutional networks, CVPR 2017, Table 2 (depth 100,
        growth 12: 0.8 million parameters for CIFAR-10).

    >>> model = densenet(3, 10, depth=10, generator=torch.Generator().manual_seed(0)).eval()
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 10]
    """
    require((depth - 4) % 6 == 0 and depth > 4, f"depth is {depth}; expected 10, 16, 22, ...")
    require(side >= 4, f"side is {side}; expected at least 4 pixels")
    width = 2 * growth
    with torch.device("meta"):
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block in range(3):
            for _ in range((depth - 4) // 6):
                layers.append(DenseBottleneck(width, growth))
                width += growth
            if block < 2:
                layers.append(Transition(width))
                width //= 2
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        layers.append(nn.Linear(width, classes))
    return initialise(Sequential(*layers), generator=generator)
