"""Residual networks: ResNet20 for CIFAR's 32 x 32 and ResNet50 for ImageNet's 224 x 224.

Their parameters are named as in torchvision. Call ``eval()`` before taking gradients: in training
mode batch normalisation makes a record's gradient depend on the rest of its batch.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from leakgauge.core.checks import require_choice, require_count
from leakgauge.models.initialisation import initialise

SHORTCUTS = ("pad", "conv")


def resnet20(
    channels: int, classes: int, width: int = 16, *, shortcut: str = "pad", generator: Generator
) -> "ResNet":
    """Return a ResNet20: a convolution, three stages of three blocks, and a linear head.

    Args:
        channels: channels of an image of any size; the network is designed for 32 x 32.
        classes: outputs of the head (logits).
        width: channels of the first stage; 64 gives the ResNet20-4 of the inversion papers.
        shortcut: where a stage halves the image, ``"pad"`` takes every second pixel and fills the
            new channels with zeros (option A, no parameters); ``"conv"`` is a 1 x 1 convolution
            with normalisation (option B).
        generator: draws the first weights by PyTorch's scheme.

    Raises:
        InputError: the shortcut is unknown, or the width is not a whole number above 0.

    References:
        He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

    >>> model = resnet20(3, 10, 4, generator=torch.Generator().manual_seed(0)).eval()
    >>> list(model(torch.zeros(2, 3, 32, 32)).shape)
    [2, 10]
    """
    return _for_small_images(3, channels, classes, width, shortcut, generator)


def resnet56(
    channels: int, classes: int, width: int = 16, *, shortcut: str = "pad", generator: Generator
) -> "ResNet":
    """Return a ResNet56: as ``resnet20``, with nine blocks in each stage.

    >>> model = resnet56(3, 10, 4, generator=torch.Generator().manual_seed(0)).eval()
    >>> len(model.layer3)
    9
    """
    return _for_small_images(9, channels, classes, width, shortcut, generator)


def _for_small_images(
    blocks: int, channels: int, classes: int, width: int, shortcut: str, generator: Generator
) -> "ResNet":
    require_choice(shortcut, "shortcut", SHORTCUTS)
    require_count(width, "width")
    with torch.device("meta"):
        stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        stages = []
        for wide in (width, 2 * width, 4 * width):
            before = max(width, wide // 2)
            first = _Basic(before, wide, stride=wide // before, shortcut=shortcut)
            rest = (_Basic(wide, wide, stride=1, shortcut=shortcut) for _ in range(blocks - 1))
            stages.append(nn.Sequential(first, *rest))
        model = ResNet(stem, nn.Identity(), stages, nn.Linear(4 * width, classes))
    return initialise(model, generator=generator)


def resnet50(classes: int, channels: int = 3, *, generator: Generator) -> "ResNet":
    """Return a ResNet50 with the stride on the 3 x 3 convolution, as in torchvision.

    Args:
        classes: outputs of the head (logits).
        channels: channels of an image of any size; the network is designed for 224 x 224.
        generator: draws the first weights by PyTorch's scheme.

    References:
        He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1.

    >>> model = resnet50(10, generator=torch.Generator().manual_seed(0)).eval()
    >>> sum(value.numel() for value in model.parameters()) - 10 * 2049  # all but the head
    23508032
    """
    with torch.device("meta"):
        stem = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        stages, before = [], 64
        for inner, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            first = _Bottleneck(before, inner, stride=stride)
            before = 4 * inner
            rest = (_Bottleneck(before, inner, stride=1) for _ in range(blocks - 1))
            stages.append(nn.Sequential(first, *rest))
        pool = nn.MaxPool2d(3, stride=2, padding=1)
        model = ResNet(stem, pool, stages, nn.Linear(before, classes))
    return initialise(model, generator=generator)


class ResNet(nn.Module):
    """A first convolution, stages of residual blocks, the mean over pixels and a linear head.

    Attributes:
        aliases: prefixes of other libraries and ours, for ``load_weights``.
    """

    aliases: ClassVar[Mapping[str, str]] = {"linear.": "fc."}

    def __init__(
        self, stem: nn.Conv2d, pool: nn.Module, stages: list[nn.Sequential], head: nn.Linear
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = stem, nn.BatchNorm2d(stem.out_channels)
        self.relu, self.pool = nn.ReLU(), pool
        self._stages = [f"layer{number}" for number in range(1, len(stages) + 1)]
        for name, stage in zip(self._stages, stages, strict=True):
            self.add_module(name, stage)
        self.fc = head

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits ``[B, classes]`` of images ``[B, channels, h, w]``."""
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        for name in self._stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.fc(x.mean(dim=(2, 3)))
        return logits


class _Basic(nn.Module):
    """Two 3 x 3 convolutions, added to a shortcut."""

    def __init__(self, before: int, wide: int, *, stride: int, shortcut: str) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, wide, 3, stride, padding=1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(wide), nn.ReLU()
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(wide), nn.ReLU()
        self.downsample = _shortcut(before, wide, stride, shortcut)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(x)))
        output: Tensor = self.relu2(self.bn2(self.conv2(inner)) + self.downsample(x))
        return output


class _Bottleneck(nn.Module):
    """Convolutions of 1 x 1, 3 x 3 and 1 x 1, added to a shortcut."""

    def __init__(self, before: int, inner: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.bn1, self.relu1 = nn.BatchNorm2d(inner), nn.ReLU()
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.bn2, self.relu2 = nn.BatchNorm2d(inner), nn.ReLU()
        self.conv3 = nn.Conv2d(inner, 4 * inner, 1, bias=False)
        self.bn3, self.relu3 = nn.BatchNorm2d(4 * inner), nn.ReLU()
        self.downsample = _shortcut(before, 4 * inner, stride, "conv")

    def forward(self, x: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(x)))
        inner = self.relu2(self.bn2(self.conv2(inner)))
        output: Tensor = self.relu3(self.bn3(self.conv3(inner)) + self.downsample(x))
        return output


def _shortcut(before: int, wide: int, stride: int, shortcut: str) -> nn.Module:
    if before == wide and stride == 1:
        return nn.Identity()
    if shortcut == "pad":
        return _Pad(wide - before, stride)
    projection = nn.Conv2d(before, wide, 1, stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(wide))


class _Pad(nn.Module):
    """Every ``stride``-th pixel, and ``extra`` channels of zeros, half of them on each side."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = extra, stride

    def forward(self, x: Tensor) -> Tensor:
        lower = self.extra // 2
        kept = x[:, :, :: self.stride, :: self.stride]
        return pad(kept, (0, 0, 0, 0, lower, self.extra - lower))
