"""Read arrays from a ``.npz`` file without running code in it."""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.data.read import unreadable

_UNREADABLE = (
    *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
    RuntimeError,  # an encrypted archive; NotImplementedError, an unknown compression, is one
)

_ADDED = "__MACOSX/"  # folder that macOS adds to an archive


def read_npz(file: Path, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays ``names`` of ``file``, or all; code in the file never runs.

    Raises:
        InputError: the file is not a whole ``.npz`` file, an array is missing, or a value is not
            an array of numbers or text.
    """
    # Checked first, because NumPy would read any other file as a pickle.
    require(zipfile.is_zipfile(file), f"{str(file)!r} is no .npz file, or only a part of one")
    chosen = {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            known = [name for name in arrays if not name.startswith(_ADDED)]
            for name in known if names is None else names:
                require(name in known, f"no {name!r} in {str(file)!r}{nearest(name, known)}")
                chosen[name] = arrays[name]
                # NumPy hands out the bytes of any other file in the archive.
                require(
                    isinstance(chosen[name], np.ndarray),
                    f"{name!r} in {str(file)!r} is no array; write the file by numpy.savez",
                )
    except InputError:
        raise
    except _UNREADABLE as error:
        # NumPy's own message advises allow_pickle=True, which would run code from the file.
        if "allow_pickle" in str(error):
            raise InputError(
                f"array {name!r} in {str(file)!r} holds Python objects; save it as text or numbers"
            ) from error
        raise unreadable(file, error) from error
    return chosen


def array_table(x: npt.NDArray[Any], **columns: npt.NDArray[Any]) -> pd.DataFrame:
    """Return records ``[n, d]`` as a table: columns ``x0`` to ``xd``, then others by name.

    >>> array_table(np.zeros((3, 2)), y=np.ones(3)).columns.tolist()
    ['x0', 'x1', 'y']
    """
    features = pd.DataFrame(x, columns=[f"x{at}" for at in range(x.shape[1])])
    return pd.concat([features, pd.DataFrame(columns)], axis=1)
