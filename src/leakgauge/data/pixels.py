"""Convert pixels to model input and back."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import require


@dataclass(frozen=True)
class Pixels:
    """Scaling of pixels from 0 to 1 to model input: ``(pixel - mean) / std`` by channel.

    Attributes:
        mean: the mean of each channel, in pixels from 0 to 1.
        std: the standard deviation of each channel, above 0.

    Raises:
        InputError: a channel lacks its mean or std, or a std is not above 0.

    >>> gray = Pixels((0.5,), (0.25,))
    >>> gray.encode(torch.tensor([[[[0, 255]]]], dtype=torch.uint8))
    tensor([[[[-2.,  2.]]]])
    >>> gray.decode(torch.tensor([[[[-2.0, 9.0]]]]))
    tensor([[[[0., 1.]]]])
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        require(
            len(self.mean) == len(self.std) > 0,
            f"{len(self.mean)} means and {len(self.std)} spreads of channels; expected one of "
            "each for every channel",
        )
        require(min(self.std) > 0, f"spreads of channels are {self.std}; expected all above 0")

    @classmethod
    def learn(cls, images: Tensor | NDArray[np.uint8]) -> "Pixels":
        """Return the scaling of ``encode_pictures``: mean and std of the images' channels.

        A constant channel has std 1.

        Args:
            images: uint8 ``[n, c, h, w]`` or ``[n, h, w, c]``, c 1 or 3.
        """
        x = _channels_first(images, None).float() / 255
        spread = x.std(dim=(0, 2, 3), correction=0)
        mean, std = x.mean(dim=(0, 2, 3)), torch.where(spread > 0, spread, 1.0)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def low(self) -> Tensor:
        """Black in model units, ``[c, 1, 1]``."""
        return self._scaled(torch.zeros(len(self.mean), 1, 1))

    @property
    def high(self) -> Tensor:
        """White in model units, ``[c, 1, 1]``."""
        return self._scaled(torch.ones(len(self.mean), 1, 1))

    def encode(self, images: Tensor | NDArray[np.uint8]) -> Tensor:
        """Return images as model input ``[n, c, h, w]``, float32.

        Args:
            images: uint8 ``[n, c, h, w]`` or ``[n, h, w, c]``; where both fit, the first.

        Raises:
            InputError: ``images`` has another type or shape.
        """
        return self._scaled(_channels_first(images, len(self.mean)).float() / 255)

    def decode(self, x: Tensor) -> Tensor:
        """Return the pixels of model input ``[..., c, h, w]``, clipped to 0 to 1.

        Raises:
            InputError: the number of channels differs.
        """
        require(
            x.dim() >= 3 and x.shape[-3] == len(self.mean),
            f"model input is {list(x.shape)}; expected [..., {len(self.mean)}, h, w]",
        )
        mean, std = self._mean_and_std(x)
        return (x * std + mean).clamp(0, 1)

    def _scaled(self, pixels: Tensor) -> Tensor:
        mean, std = self._mean_and_std(pixels)
        return (pixels - mean) / std

    def _mean_and_std(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return like.new_tensor(self.mean).view(-1, 1, 1), like.new_tensor(self.std).view(-1, 1, 1)


# Mean and standard deviation over all training images of each dataset.
CIFAR10 = Pixels((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))
CIFAR100 = Pixels((0.5071, 0.4866, 0.4409), (0.2673, 0.2564, 0.2762))
IMAGENET = Pixels((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PLAIN = Pixels((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Leaves pixels from 0 to 1 unchanged; three channels."""


def _channels_first(images: Tensor | NDArray[np.uint8], channels: int | None) -> Tensor:
    x = torch.from_numpy(images) if isinstance(images, np.ndarray) else images
    fits = (1, 3) if channels is None else (channels,)
    require(
        x.dtype == torch.uint8 and x.dim() == 4 and (x.shape[1] in fits or x.shape[3] in fits),
        f"images are {x.dtype} {list(x.shape)}; expected uint8 [n, c, h, w] or [n, h, w, c] with "
        f"{' or '.join(map(str, fits))} channels",
    )
    return x if x.shape[1] in fits else x.permute(0, 3, 1, 2)
