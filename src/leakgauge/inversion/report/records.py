"""Kept records, true and rebuilt: read from the run folder, and shown as PNG images."""

import base64
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.inversion.run.kept import TRUTH
from leakgauge.results.measurements import PICTURES_FILE, ROWS_FILE

RecordRows = list[dict[str, Any]]
"""Text by column for each record; in an attempt, its text and whether it is right, and for a method
that says how sure it is, whether it is near, and the confidence from 0 to 1."""

_AGAIN = "run the command again"


def read_pictures(folder: Path, attempts: int) -> dict[str, Tensor]:
    """Return the kept images; empty if none are kept.

    Args:
        folder: folder of the finished question.
        attempts: number of attempts.

    Returns:
        Uint8 ``[n, c, h, w]`` by ``"truth"`` and by the number of the attempt.

    Raises:
        InputError: the file is damaged, or of another run.
    """
    path = folder / PICTURES_FILE
    if not path.is_file():
        return {}
    try:
        pictures: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _refusal(path, str(error)) from error
    _check_names(path, set(pictures), attempts)
    shapes = {tuple(x.shape) for x in pictures.values()}
    sound = all(x.dtype == torch.uint8 and x.dim() == 4 for x in pictures.values())
    if not (sound and len(shapes) == 1 and next(iter(shapes))[1] in (1, 3)):
        raise _refusal(
            path, f"it holds {sorted(map(list, shapes))} instead of images [n, 1 or 3, h, w]"
        )
    return pictures


def read_rows(folder: Path, attempts: int) -> dict[str, RecordRows]:
    """Return the kept rows of a table in the same way as ``read_pictures``.

    Raises:
        InputError: the file is damaged, or of another run.
    """
    path = folder / ROWS_FILE
    if not path.is_file():
        return {}
    try:
        rows: dict[str, RecordRows] = json.loads(path.read_text(encoding="utf-8"))
        _check_names(path, set(rows), attempts)
        sound = _fit_together(rows, attempts)
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise _refusal(path, str(error)) from error
    require(sound, f"{path} cannot be read (its rows do not fit together); {_AGAIN}")
    return rows


def _fit_together(rows: dict[str, RecordRows], attempts: int) -> bool:
    """Return whether every attempt has the truth's rows and columns, and pairs as values."""
    columns = [list(row) for row in rows[TRUTH]]
    rebuilt = [rows[str(at)] for at in range(attempts)]
    return all(
        [list(row) for row in one] == columns
        and all(_is_cell(v) for row in one for v in row.values())
        for one in rebuilt
    )


def _is_cell(value: Any) -> bool:
    """Return whether a kept value is a text and a mark, or these with a mark and a confidence."""
    if not isinstance(value, list) or len(value) not in (2, 4) or not isinstance(value[1], bool):
        return False
    return len(value) == 2 or (isinstance(value[2], bool) and 0 <= value[3] <= 1)


def _check_names(path: Path, names: set[str], attempts: int) -> None:
    if names - {TRUTH} != {str(at) for at in range(attempts)}:
        raise _refusal(path, f"it holds {sorted(names)}, the measurements {attempts} attempts")


def _refusal(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be read ({' '.join(why.split())}); {_AGAIN}")


def gallery(pictures: Mapping[str, Tensor]) -> list[list[str]]:
    """Return data addresses of PNGs: a row for the truth, if it is known, and one per attempt.

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
