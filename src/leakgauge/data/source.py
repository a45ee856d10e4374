"""Open data by the name of a dataset, a file, or a folder of images."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from leakgauge.core.checks import InputError, nearest, require, require_count
from leakgauge.core.types import Dataset, Task
from leakgauge.data.columns import shape_of
from leakgauge.data.fingerprints import fingerprint
from leakgauge.data.image_files import PixelArray
from leakgauge.data.image_sources import (
    Images,
    image_column,
    read_image_arrays,
    read_image_folder,
    read_image_parquet,
)
from leakgauge.data.named import IMAGES, ROLES, TABLES
from leakgauge.data.read import STDIN, ReadTable, array_table, read_noted, read_npz
from leakgauge.data.table import Roles
from leakgauge.data.text_tables import TextFormat
from leakgauge.data.tidying import numbered


@dataclass(frozen=True, eq=False)
class Source:
    """Unchanged data before any column has a role, or a user's task.

    Attributes:
        name: the name of the data in the report.
        frame: one row for each record; its columns can be labels, secrets, users or features.
        pixels: images, uint8 ``[n, c, side, side]`` in the order of the rows, which are then the
            features; columns without a role are left out. None for a table.
        roles: the default roles of a named dataset; None for any other data.
        fingerprint: sha256 of the content, 64 hex digits; for decoded images it can differ between
            versions of Pillow.
        notes: changes to the data that users should know.
        task: a user's model and loss; None if leakgauge chooses the network.
        dataset: the records of ``task``, used instead of ``frame``.
    """

    name: str
    frame: pd.DataFrame
    pixels: PixelArray | None
    roles: Roles | None
    fingerprint: str
    notes: tuple[str, ...] = ()
    task: Task | None = None
    dataset: Dataset | None = None

    def __repr__(self) -> str:
        """Return a summary without rows, which are private."""
        if self.dataset is not None:
            return f"<Source {self.name!r}: {self.dataset!r}>"
        what = shape_of(self.frame)
        return f"<Source {self.name!r}: {what}{' and images' if self.pixels is not None else ''}>"


@contextmanager
def explained(source: Source) -> Iterator[None]:
    """Add to a refusal what the reading did to the column: words that count as missing, sheets.

    Without it, the advice to leave out rows would remove a region ``NA``.
    """
    try:
        yield
    except InputError as error:
        column = re.search(r"('.*') is missing in \d+ of", str(error))
        sheets = [note for note in source.notes if "--sheet" in note and "no column" in str(error)]
        found = [note for note in source.notes if "as missing" in note]
        said = [note for note in found if column is not None and column[1] in note]
        if not said and not sheets:
            raise
        raise InputError(f"{error}; {'; '.join([*said, *sheets])}") from error


def open_data(
    spec: str | os.PathLike[str],
    *,
    side: int = 32,
    text: TextFormat | None = None,
    allow_outside: bool = False,
) -> Source:
    """Return a named dataset, or the table or images at a path.

    Args:
        spec: a path, or a name of ``leakgauge.data.DATASETS`` if no such path exists:

            - a table, or ``-`` for one on the standard input (``read_noted``);
            - ``.parquet`` with a column of encoded images (``read_image_parquet``);
            - ``.npz`` of images and columns (``read_image_arrays``), or of records ``x``
              ``[n, d]`` and columns ``[n]``, as ``y``;
            - a folder of images with one CSV (``read_image_folder``).
        side: height and width of images, in pixels; tables do not use it.
        text: format of the text of a table; None detects it.
        allow_outside: whether the CSV of a folder may name images outside of it.

    Raises:
        InputError: no path or dataset has this name, or its data cannot be used.

    >>> source = open_data("randhie")
    >>> source.frame.shape, source.roles.label, source.roles.secrets
    ((20190, 22), 'any_visit', ('female',))
    """
    require_count(side, "side of images, in pixels")
    path, word = Path(spec), str(spec)
    if word == STDIN:
        return _read_source("standard input", read_noted(word, text))
    if _exists(path, word):
        return _from_path(path, word, side, text, allow_outside=allow_outside)
    if text is not None and word in DATASETS:
        raise InputError(f"{text.given} is about a file; {word!r} is a dataset; leave it out")
    if word in TABLES:
        return _source(word, TABLES[word](), ROLES[word])
    if word in IMAGES:
        return _image_source(word, IMAGES[word](side=side), ROLES[word])
    raise InputError(
        f"no file {word!r} and no dataset of that name{nearest(word, DATASETS, most=len(DATASETS))}"
    )


def frame_source(frame: pd.DataFrame, *, name: str = "table") -> Source:
    """Return a data frame as a source; columns with equal names are numbered."""
    columns, notes = numbered(list(frame.columns))
    plain = frame.set_axis(columns, axis=1).reset_index(drop=True)
    return _read_source(name, ReadTable(plain, tuple(notes)))


def array_source(x: Any, y: Any, secrets: Mapping[str, Any], users: Any = None) -> Source:
    """Return arrays as a source: records ``[n, d]``, or images ``[n, h, w, c]`` uint8.

    The columns are ``x0``, ``x1``, ..., ``label``, the names in ``secrets``, and ``user``.

    Raises:
        InputError: the parts differ in length, or ``x`` has another shape.
    """
    values = np.asarray(x)
    columns = {"label": y, **secrets, **({} if users is None else {"user": users})}
    for name, column in columns.items():
        require(
            len(column) == len(values),
            f"{name} has {len(column)} values for {len(values)} records; expected one for each",
        )
    roles = pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})
    if values.ndim == 4 and values.dtype == np.uint8:
        pixels = np.ascontiguousarray(values.transpose(0, 3, 1, 2))
        return _image_source("images", Images(roles, pixels))
    require(
        values.ndim == 2,
        f"records are {list(values.shape)} {values.dtype}; expected [n, d], or images "
        "[n, h, w, c] uint8",
    )
    return _source("arrays", array_table(values, **roles))


DATASETS = (*TABLES, *IMAGES)
"""The datasets that ``open_data`` knows by name."""


def _exists(path: Path, word: str) -> bool:
    try:
        word.encode()
        return path.exists()
    except UnicodeEncodeError as error:  # names from archives of other systems
        shown = os.fsencode(word).decode("utf-8", "replace")
        raise InputError(f"the name of {shown!r} is not UTF-8 text; rename the file") from error
    except OSError as error:  # a locked folder or a too long name
        raise InputError(f"{word[:200]!r} cannot be opened: {error.strerror}") from error


def _from_path(
    path: Path, word: str, side: int, text: TextFormat | None, *, allow_outside: bool
) -> Source:
    try:
        images, name = _images(path, side, allow_outside=allow_outside), path.resolve().name
        if images is None:
            if path.suffix.lower() != ".npz":
                return _read_source(name, read_noted(path, text))
            require(text is None, f"{text and text.given} is not about .npz; leave it out")
            return _read_source(name, _read_arrays(path))
        require(text is None, f"{text and text.given} is about a table; leave it out for images")
        return _image_source(name, images)
    except InputError as error:
        if word not in DATASETS:
            raise
        raise InputError(
            f"{error}; {word!r} is a path here, which hides the dataset of that name"
        ) from error


def _images(path: Path, side: int, *, allow_outside: bool) -> Images | None:
    """Return the images at a path, or None if it holds a table."""
    kind = path.suffix.lower()
    if path.is_dir():
        return read_image_folder(path, side=side, allow_outside=allow_outside)
    if kind == ".npz":
        x = read_npz(path).get("x")
        is_table = x is not None and x.ndim == 2  # records [n, d]
        return None if is_table else read_image_arrays(path, side=side)
    if kind == ".parquet" and image_column(path) is not None:
        return read_image_parquet(path, side=side)
    return None


def _read_arrays(path: Path) -> ReadTable:
    """Return records ``x`` ``[n, d]`` and all arrays ``[n]``, such as ``y``, as a table."""
    arrays = read_npz(path)
    x = arrays.pop("x")
    columns = {name: array for name, array in arrays.items() if array.shape == (len(x),)}
    notes = [
        f"array {name!r} of shape {array.shape} was left out: columns have shape ({len(x)},)"
        for name, array in arrays.items()
        if name not in columns
    ]
    return ReadTable(array_table(x, **columns), tuple(notes))


def _read_source(name: str, read: ReadTable) -> Source:
    return replace(_source(name, read.frame), notes=read.notes)


def _source(name: str, frame: pd.DataFrame, roles: Roles | None = None) -> Source:
    return Source(name, frame, None, roles, fingerprint(frame))


def _image_source(name: str, images: Images, roles: Roles | None = None) -> Source:
    pixels = fingerprint({"pixels": torch.from_numpy(images.pixels)})
    both = hashlib.sha256(f"{fingerprint(images.frame)} {pixels}".encode()).hexdigest()
    return Source(name, images.frame, images.pixels, roles, both, images.notes)
