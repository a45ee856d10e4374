"""Reads what was kept of the records, true and rebuilt, beside the run's figures."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.results.measurements import PICTURES_FILE, ROWS_FILE

TRUTH = "truth"

Rows = list[dict[str, Any]]
"""Of each record, by column: its text, for an attempt a pair of text and whether it is right."""


def pictures(folder: Path, attempts: int) -> dict[str, Tensor]:
    """Images by ``"truth"`` and number of the attempt, uint8 ``[n, c, h, w]``; empty without.

    Raises:
        InputError: the file is damaged, or of another run.
    """
    path = folder / PICTURES_FILE
    if not path.is_file():
        return {}
    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise _refused(path, str(error)) from error
    _check_names(path, set(found), attempts)
    shapes = {tuple(x.shape) for x in found.values()}
    sound = all(x.dtype == torch.uint8 and x.dim() == 4 for x in found.values())
    if not (sound and len(shapes) == 1 and next(iter(shapes))[1] in (1, 3)):
        raise _refused(path, f"it holds {sorted(map(list, shapes))}, no images [n, 1 or 3, h, w]")
    return found


def rows(folder: Path, attempts: int) -> dict[str, Rows]:
    """Rows of a table in the same way.

    Raises:
        InputError: as ``pictures``.
    """
    path = folder / ROWS_FILE
    if not path.is_file():
        return {}
    try:
        found: dict[str, Rows] = json.loads(path.read_text(encoding="utf-8"))
        _check_names(path, set(found), attempts)
        columns = [list(row) for row in found[TRUTH]]
        tried = [found[str(at)] for at in range(attempts)]
        # Taking every pair apart shows that there are pairs.
        sound = all(
            [list(row) for row in one] == columns
            and all(isinstance(right, bool) for row in one for _, right in row.values())
            for one in tried
        )
    except (OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise _refused(path, str(error)) from error
    require(sound, f"{path} cannot be read (its rows do not fit one another); {_AGAIN}")
    return found


_AGAIN = "run the command again"


def _check_names(path: Path, found: set[str], attempts: int) -> None:
    wanted = {str(at) for at in range(attempts)}
    if found - {TRUTH} != wanted:
        raise _refused(path, f"it holds {sorted(found)}, the records are of {attempts} attempts")


def _refused(path: Path, why: str) -> InputError:
    return InputError(f"{path} cannot be read ({' '.join(why.split())}); {_AGAIN}")
