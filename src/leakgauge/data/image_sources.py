"""Read images from folders, Parquet files and arrays, as pixels of one size and a table."""

import os
from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from leakgauge.core.checks import InputError, require, require_count, require_known
from leakgauge.data.columns import shape_of
from leakgauge.data.image_files import PixelArray, decode, is_image, resized
from leakgauge.data.read import existing, read_noted, read_npz, unreadable

FILE_COLUMN = "file"
PIXEL_ARRAY = "x"

_ROWS = 1024  # encoded images in memory at once
_LOOKED_AT = 8  # values that show whether a column of bytes holds images
_SHOWN = 3  # names in a message


@dataclass(frozen=True, eq=False)
class Images:
    """Images and a table with one row for each.

    Attributes:
        frame: one row for each image; its columns hold labels, secrets and users.
        pixels: uint8 ``[n, c, side, side]``, in the order of the rows.
        notes: changes to the data that users should know.
    """

    frame: pd.DataFrame
    pixels: PixelArray
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return a summary without images and rows."""
        return f"<Images: {shape_of(self.frame)}, pixels {list(self.pixels.shape)}>"


def read_image_folder(
    folder: str | os.PathLike[str], *, side: int = 32, allow_outside: bool = False
) -> Images:
    """Return the images of a folder and the table of the one CSV in it.

    The CSV's column ``file`` gives the path of each image, relative to the folder; the other
    columns become the frame. Images become RGB, upright (EXIF) and opaque, and are resized to a
    square (Lanczos; the ratio of width to height is not kept).

    Args:
        folder: the folder; images that the CSV does not name are left out.
        side: height and width of the result, in pixels.
        allow_outside: whether the CSV may name images outside of the folder, also by a link.

    Raises:
        InputError: the folder does not have exactly one CSV, the CSV lacks the column ``file`` or
            has no other, or an image is missing, outside of the folder, or cannot be decoded.
    """
    require_count(side, "side of images, in pixels")
    root = Path(folder)
    table = _only_csv(root)
    read = read_noted(table)
    frame = read.frame
    lacking = f"{str(table)!r} has no column {FILE_COLUMN!r}, which names the images"
    require_known(FILE_COLUMN, frame.columns, lacking)
    _require_columns(frame.columns.drop(FILE_COLUMN), str(table))
    unnamed = int(frame[FILE_COLUMN].isna().sum())
    require(
        unnamed == 0,
        f"column {FILE_COLUMN!r} of {str(table)!r} is empty in {unnamed} of {len(frame)} rows; "
        "remove these",
    )
    names = [str(name) for name in frame.pop(FILE_COLUMN)]
    inside = root.resolve()
    whole = {name: Path(os.path.realpath(root / name)) for name in names}  # takes a loop of links
    outside = [name for name in names if not whole[name].is_relative_to(inside)]
    require(
        allow_outside or not outside,
        f"{len(outside)} of {len(names)} images that {str(table)!r} names lie outside of its "
        f"folder: {_first(outside)}; pass --allow-outside if you trust the table",
    )
    absent = [name for name in names if not (root / name).is_file()]
    require(
        not absent,
        f"{len(absent)} of {len(names)} images that {str(table)!r} names are missing: "
        f"{_first(absent)}; paths start at the folder {str(root)!r}",
    )
    files = [(repr(str(root / name)), root / name) for name in names]
    return Images(frame, decode(files, side=side), read.notes)


def image_column(path: str | os.PathLike[str]) -> str | None:
    """Return the column of a Parquet file that holds encoded images, or None.

    Such a column holds the bytes of image files, or structs with a field ``bytes``.

    Raises:
        InputError: the file is missing or not Parquet, or it has several such columns.
    """
    file = existing(path)
    try:
        with pq.ParquetFile(file) as parquet:
            possible = [field.name for field in parquet.schema_arrow if _holds_bytes(field.type)]
            columns = [name for name in possible if _starts_with_images(parquet, name)]
    except (OSError, ValueError, NotImplementedError) as error:
        raise unreadable(file, error) from error
    require(
        len(columns) <= 1,
        f"{str(file)!r} has {len(columns)} columns of images: {_first(columns)}; keep one",
    )
    return columns[0] if columns else None


def read_image_parquet(path: str | os.PathLike[str], *, side: int = 32) -> Images:
    """Return the images of a Parquet file with one column of encoded images.

    Images change as in ``read_image_folder``. About a thousand of them are decoded at a time.

    Args:
        path: the file.
        side: height and width of the result, in pixels.

    Raises:
        InputError: the file has no column of images or several, or no other column, or an image is
            missing or cannot be decoded.
    """
    require_count(side, "side of images, in pixels")
    file, column = existing(path), image_column(path)
    if column is None:
        raise InputError(f"{str(file)!r} has no column of encoded images")
    names = [name for name in pq.read_schema(file).names if name != column]
    others = [name for name in names if not name.startswith("__index_level_")]
    _require_columns(others, str(file))
    try:
        frame = pd.read_parquet(file, columns=others)
        with pq.ParquetFile(file) as parquet:
            chunks = _chunks(parquet, column, _ROWS)
            parts = [decode(_named(chunk, column, file), side=side) for chunk in chunks]
    except InputError:
        raise
    except (OSError, ValueError, NotImplementedError) as error:
        raise unreadable(file, error) from error
    named = [name for name in frame.index.names if name is not None]
    frame = frame.reset_index(level=named) if named else frame.reset_index(drop=True)
    return Images(frame, np.concatenate(parts))


def read_image_arrays(
    path: str | os.PathLike[str], *, side: int = 32, part: str = "test"
) -> Images:
    """Return the images in the array ``x`` of a ``.npz`` file, with each array ``[n]`` as a column.

    Images of another size are resized as in ``read_image_folder``; gray ones keep one channel.
    A file with ``x_test`` and no ``x`` gives one part: ``y_test`` becomes ``y``.

    Args:
        path: the file. ``x`` is uint8 ``[n, h, w]`` or ``[n, h, w, c]``, c one of 1, 3, 4.
        side: height and width of the result, in pixels.
        part: the part to read from a file with several parts.

    Raises:
        InputError: the file cannot be read, ``x`` is missing or has another type or shape, no array
            has one value for each image, or an array holds Python objects.
    """
    require_count(side, "side of images, in pixels")
    file = existing(path)
    arrays = read_npz(file)
    chosen, ending = [], f"_{part}"
    if PIXEL_ARRAY not in arrays and PIXEL_ARRAY + ending in arrays:
        arrays = {name.removesuffix(ending): arrays[name] for name in arrays if ending in name}
        chosen.append(f"the arrays that end in {ending!r} were read, the others left out")
    require_known(PIXEL_ARRAY, arrays, f"no array {PIXEL_ARRAY!r} of images in {str(file)!r}")
    images, notes = _checked(arrays.pop(PIXEL_ARRAY), f"{PIXEL_ARRAY!r} in {str(file)!r}")
    notes += chosen
    n, height, width = images.shape[:3]
    columns = {name: array for name, array in arrays.items() if array.shape == (n,)}
    _require_columns(columns, str(file))
    for name in arrays.keys() - columns.keys():
        shape = arrays[name].shape
        notes.append(f"array {name!r} of shape {shape} was left out: columns have shape ({n},)")
    if (height, width) != (side, side):
        images = resized(images, side)
        notes.append(f"images of {height} x {width} pixels were resized to {side} x {side}")
    pixels = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return Images(pd.DataFrame(columns), pixels, tuple(sorted(notes)))


def _only_csv(folder: Path) -> Path:
    require(folder.is_dir(), f"no folder {str(folder)!r}")
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".csv")
    expected = f"expected one, with a column {FILE_COLUMN!r} that names the images"
    require(len(files) > 0, f"no CSV in the folder {str(folder)!r}; {expected}")
    names = [file.name for file in files]
    require(
        len(files) == 1,
        f"{len(files)} CSVs in the folder {str(folder)!r}: {_first(names)}; {expected}",
    )
    return files[0]


def _require_columns(columns: Sized, where: str) -> None:
    require(
        len(columns) > 0,
        f"{where!r} says nothing about its images; expected columns of labels and secrets, with "
        "one value for each image",
    )


def _first(names: Sequence[str]) -> str:
    more = "" if len(names) <= _SHOWN else ", ..."
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more


def _holds_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0 and _holds_bytes(kind.field("bytes").type))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _starts_with_images(parquet: pq.ParquetFile, column: str) -> bool:
    first = next(_chunks(parquet, column, _LOOKED_AT), {})
    return any(is_image(value) for value in first.values() if value is not None)


def _chunks(parquet: pq.ParquetFile, column: str, rows: int) -> Iterator[dict[int, bytes | None]]:
    """Yield the values of a column of bytes by row, ``rows`` rows at a time."""
    start = 0
    for batch in parquet.iter_batches(batch_size=rows, columns=[column]):
        values = batch.column(0)
        if pa.types.is_struct(values.type):
            values = values.field(values.type.get_field_index("bytes"))
        yield dict(enumerate(values.to_pylist(), start))
        start += len(values)


def _named(
    chunk: dict[int, bytes | None], column: str, file: Path
) -> list[tuple[str, bytes | Path]]:
    named: list[tuple[str, bytes | Path]] = []
    for row, value in chunk.items():
        name = f"row {row} of column {column!r} of {str(file)!r}"
        if value is None:
            raise InputError(f"{name} holds no image; remove rows without an image")
        named.append((name, value))
    return named


def _checked(images: npt.NDArray[Any], what: str) -> tuple[PixelArray, list[str]]:
    """Return images ``[n, h, w, c]``, c 1 or 3, and notes."""
    shape = images.shape
    expected = "expected uint8 [n, h, w] or [n, h, w, c] with 1, 3 or 4 channels"
    require(images.ndim in (3, 4), f"{what} has shape {shape}; {expected}")
    require(images.dtype == np.uint8, f"{what} holds {images.dtype}; {expected}")
    require(images.size > 0, f"{what} is empty, of shape {shape}; {expected}")
    images = images[..., None] if images.ndim == 3 else images
    turn = "; put the channels last: x.transpose(0, 2, 3, 1)" if shape[1] in (1, 3, 4) else ""
    require(images.shape[3] in (1, 3, 4), f"{what} has shape {shape}; {expected}{turn}")
    if images.shape[3] < 4:
        return images, []
    return images[..., :3], ["the fourth channel of the images (transparency) was left out"]
