"""LPIPS v0.1 on AlexNet: the distance of two images by the features of a trained network.

The weights are not part of this package; they are read from a safetensors file with AlexNet's
``features.*`` and LPIPS' ``lin0.weight`` to ``lin4.weight``.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, max_pool2d, relu

from leakgauge.core.checks import InputError, require
from leakgauge.data.named import data_folder

WEIGHTS_FILE = "weights/lpips_alexnet.safetensors"
"""Place of the weights in the folder of named data sets."""

NO_WEIGHTS = f"LPIPS is left out: it has no weights; name the folder that holds {WEIGHTS_FILE}"
"""The note of a run without LPIPS."""

# Number of AlexNet's layer, its shape [out, in, k, k], stride, padding.
_LAYERS = (
    (0, (64, 3, 11, 11), 4, 2),
    (3, (192, 64, 5, 5), 1, 2),
    (6, (384, 192, 3, 3), 1, 1),
    (8, (256, 384, 3, 3), 1, 1),
    (10, (256, 256, 3, 3), 1, 1),
)
_POOLED = (3, 6)  # layers with a pool before them
_LEAST = 31  # pixels; with fewer, the second pool would be empty

# Mean and scale of pixels from -1 to 1, as in the training of LPIPS.
_SHIFT = (-0.030, -0.088, -0.188)
_SCALE = (0.458, 0.448, 0.450)


@dataclass(frozen=True, eq=False)
class Lpips:
    """The distance of two images: 0 for equal ones, about 0.7 for unlike ones.

    Attributes:
        weights: weights by name, as in the file.

    References:
        Zhang, Isola, Efros, Shechtman and Wang, The unreasonable effectiveness of deep features
        as a perceptual metric, CVPR 2018.
    """

    weights: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        for name, shape in _shapes().items():
            require(name in self.weights, f"LPIPS weights have no {name!r}")
            came = tuple(self.weights[name].shape)
            require(came == shape, f"LPIPS weight {name!r} is {came}; expected {shape}")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Lpips":
        """Read the weights from a safetensors file.

        Raises:
            InputError: the file is missing, is not a safetensors file, or holds other weights.
        """
        try:
            return cls({name: leaf.float() for name, leaf in load_file(Path(path)).items()})
        except (OSError, safetensors.SafetensorError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"LPIPS weights {str(path)!r} cannot be read ({reason}); expected safetensors"
            ) from error

    @torch.no_grad()
    def __call__(self, images: Tensor, truth: Tensor) -> Tensor:
        """Return the distance ``[n]`` of each pair of images ``[n, c, h, w]``, pixels from 0 to 1.

        Images of 32 x 32 are used unchanged (the last three layers then see one place each).
        Images below 31 pixels are first enlarged, bilinearly, to 31 on the shorter side.
        Gray images count as three equal channels.

        Raises:
            InputError: the shapes differ, or are not those of images.
        """
        require(
            images.shape == truth.shape and images.dim() == 4 and images.shape[1] in (1, 3),
            f"images are {list(images.shape)} and the truth is {list(truth.shape)}; expected the "
            "same shape [n, c, h, w] with 1 or 3 channels",
        )
        total = images.new_zeros(len(images), dtype=torch.float32)
        pairs = zip(self._features(images), self._features(truth), strict=True)
        for layer, (a, b) in enumerate(pairs):
            linear = self.weights[f"lin{layer}.weight"].to(a.device)
            total += conv2d((a - b).square(), linear).mean(dim=(1, 2, 3))
        return total

    def _features(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the features of each layer, with channels of unit length at every place."""
        x = _prepared(images.float())
        for number, _, stride, padding in _LAYERS:
            names = f"features.{number}.weight", f"features.{number}.bias"
            weight, bias = (self.weights[name].to(x.device) for name in names)
            x = max_pool2d(x, 3, 2) if number in _POOLED else x
            x = relu(conv2d(x, weight, bias, stride, padding))
            yield x / (torch.linalg.vector_norm(x, dim=1, keepdim=True) + 1e-10)


def default_lpips() -> Lpips | None:
    """Return LPIPS with the weights of the folder of named data sets; None if it has none.

    ``NO_WEIGHTS`` is the note for this case.

    Raises:
        InputError: the file exists, but holds something else.
    """
    folder = data_folder()
    path = None if folder is None else folder / WEIGHTS_FILE
    return Lpips.load(path) if path is not None and path.is_file() else None


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (number, shape, _, _) in enumerate(_LAYERS):
        shapes[f"features.{number}.weight"] = shape
        shapes[f"features.{number}.bias"] = shape[:1]
        shapes[f"lin{layer}.weight"] = (1, shape[0], 1, 1)
    return shapes


def _prepared(images: Tensor) -> Tensor:
    """Return images like those of training: three scaled channels, and enough pixels."""
    shorter = min(images.shape[2:])
    if shorter < _LEAST:
        size = [round(side * _LEAST / shorter) for side in images.shape[2:]]
        images = interpolate(images, size=size, mode="bilinear", align_corners=False)
    shift, scale = (images.new_tensor(each).view(1, 3, 1, 1) for each in (_SHIFT, _SCALE))
    return (2 * images - 1 - shift) / scale
