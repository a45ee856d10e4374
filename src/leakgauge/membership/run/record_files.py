"""Reads which records a model was trained on, and which not."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import InputError, require
from leakgauge.core.types import Dataset
from leakgauge.data.arrays import from_arrays
from leakgauge.data.read import read_npz

WANTED = "expected a .npz with arrays x and y, or a text file with one row number a line"


def read_records(path: str, data: Dataset) -> Dataset:
    """Return the records that a file names.

    Args:
        path: a ``.npz`` with the records themselves, ``x`` ``[n, ...]`` as the model takes them
            and ``y`` ``[n]`` or ``[n, k]``; or a text file with one row number of ``data`` a line,
            counted from 0 as in Python.
        data: the user's own.

    Raises:
        InputError: the file cannot be read, or does not fit the data.
    """
    file = Path(path)
    require(file.is_file(), f"records {path!r}: no such file; {WANTED}")
    if file.suffix == ".npz":
        return _from_arrays(file, data)
    return data.rows(torch.from_numpy(_rows(file, len(data))))


def _from_arrays(file: Path, data: Dataset) -> Dataset:
    arrays = read_npz(file, ("x", "y"))
    records = from_arrays(arrays["x"], arrays["y"], {}, dtype=data.x.dtype)
    wanted, came = list(data.x.shape[1:]), list(records.x.shape[1:])
    require(
        came == wanted,
        f"records in {str(file)!r} are of shape {came}; those of the task's Dataset are {wanted}",
    )
    return records


def _rows(file: Path, count: int) -> NDArray[np.int64]:
    lines = _text(file).split()
    bad = next((line for line in lines if not line.isdecimal()), None)
    require(bad is None, f"records {str(file)!r} hold {str(bad)[:40]!r}; {WANTED}")
    rows = np.array([int(line) for line in lines], dtype=np.int64)
    outside = rows[rows >= count]
    require(
        len(outside) == 0,
        f"records {str(file)!r} name row {outside[:1].sum()}; the task's Dataset has {count} rows, "
        "counted from 0",
    )
    found, counts = np.unique(rows, return_counts=True)
    repeated = found[counts > 1]
    require(
        len(repeated) == 0,
        f"records {str(file)!r} name row {repeated[:1].sum()} more than once; name each once",
    )
    return rows


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"records {str(file)!r} are no text; {WANTED}") from error
