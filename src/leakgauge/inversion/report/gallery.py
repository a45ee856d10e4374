"""Pictures as PNGs inside the page."""

import base64
import io
from collections.abc import Mapping
from typing import Any

from PIL import Image
from torch import Tensor

from leakgauge.inversion.run.kept import TRUTH


def gallery(pictures: Mapping[str, Tensor]) -> list[list[str]]:
    """Return data addresses of PNGs: a row for the truth where it is known, one for each attempt.

    Args:
        pictures: uint8 ``[n, c, h, w]`` by ``"truth"`` and by the number of the attempt.
    """
    order = [name for name in pictures if name == TRUTH]
    order += sorted((name for name in pictures if name != TRUTH), key=int)
    return [[png_address(picture) for picture in pictures[name]] for name in order]


def png_address(picture: Tensor) -> str:
    """Return the data address of a picture ``[c, h, w]`` uint8 as a PNG."""
    pixels: Any = picture.permute(1, 2, 0).numpy()
    stream = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
