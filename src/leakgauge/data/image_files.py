"""Decode image files to pixels with Pillow."""

import os
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from leakgauge.core.checks import InputError, require

PixelArray = npt.NDArray[np.uint8]

# An explicit list, because Pillow also knows formats that start other programs (EPS).
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_EIGHT_BITS = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr")
_DAMAGED = (
    *(OSError, ValueError, struct.error, zlib.error, Image.DecompressionBombError),
    SyntaxError,  # of Pillow's PNG reader
)


def decode(encoded: Sequence[tuple[str, bytes | Path]], *, side: int) -> PixelArray:
    """Return the pixels of image files, uint8 ``[n, 3, side, side]``.

    Args:
        encoded: name (for messages) and bytes or path of each image.
        side: height and width of the result, in pixels.

    Raises:
        InputError: an image cannot be decoded; the message names the first.
    """
    require(len(encoded) > 0, "there are no images to decode")
    pixels = np.empty((len(encoded), side, side, 3), dtype=np.uint8)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        # In order and one by one, so that the message names the first bad image.
        decoded = pool.map(lambda named: _decode(*named, side=side), encoded)
        for row, image in enumerate(decoded):
            pixels[row] = image
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _decode(name: str, content: bytes | Path, *, side: int) -> PixelArray:
    try:
        source = BytesIO(content) if isinstance(content, bytes) else content
        with Image.open(source, formats=_FORMATS) as image:
            require(
                image.mode in _EIGHT_BITS,
                f"image {name} has pixels of mode {image.mode!r}; expected 8 bits a channel",
            )
            return np.asarray(_square(_rgb(image), side))
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(f"image {name} is none of {', '.join(_FORMATS)}") from error
    except _DAMAGED as error:
        reason = " ".join(str(error).split())
        raise InputError(f"image {name} cannot be decoded: {reason}") from error


def _rgb(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    # Pillow wants palettes with transparent entries to pass through RGBA.
    whole = upright.convert("RGBA") if "transparency" in upright.info else upright
    return whole.convert("RGB")


def _square(image: Image.Image, side: int) -> Image.Image:
    return image.resize((side, side), Image.Resampling.LANCZOS)


def resized(images: PixelArray, side: int) -> PixelArray:
    """Return images ``[n, h, w, c]`` resized to ``[n, side, side, c]``."""
    flat = images[..., 0] if images.shape[3] == 1 else images
    resized = np.stack([np.asarray(_square(Image.fromarray(one), side)) for one in flat])
    return resized.reshape(len(images), side, side, images.shape[3])


def is_image(value: bytes) -> bool:
    """Return whether bytes begin like an image of a known format."""
    try:
        with Image.open(BytesIO(value), formats=_FORMATS):
            return True
    except _DAMAGED:
        return False
