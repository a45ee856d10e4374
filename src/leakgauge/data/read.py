"""Read a table from a file or from the standard input, and arrays from a ``.npz`` file."""

import bz2
import gzip
import io
import lzma
import os
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.data.binary_tables import (
    Parsed,
    read_excel,
    read_feather,
    read_json_lines,
    read_parquet,
)
from leakgauge.data.columns import quoted, shape_of
from leakgauge.data.missing import name_kept, without_words, words_in
from leakgauge.data.numerals import read_numerals
from leakgauge.data.text_tables import TextFormat, read_text
from leakgauge.data.tidying import numbered

STDIN = "-"
"""The path of the standard input."""

TEXT = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
"""Endings of text files, with their usual separators."""

PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
    ".zst": lambda content: pa.input_stream(pa.BufferReader(content), compression="zstd").read(),
}


@dataclass(frozen=True, eq=False)
class ReadTable:
    """A table read from a file.

    Attributes:
        frame: one row for each record.
        notes: findings and changes that users should know.
    """

    frame: pd.DataFrame
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return a summary without rows."""
        return f"<ReadTable: {shape_of(self.frame)}>"


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table that ``read_noted`` reads, without the notes.

    >>> read_table("users.xlsx")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: no file 'users.xlsx'
    """
    return read_noted(path).frame


def read_noted(path: str | os.PathLike[str], text: TextFormat | None = None) -> ReadTable:
    """Return the table in a file with a header, or on the standard input (``-``), with notes.

    ``.csv``, ``.tsv``, ``.txt``, ``.jsonl`` (one object per line), ``.xlsx`` (one sheet),
    ``.parquet`` or ``.feather``, also packed (``.gz``, ``.bz2``, ``.xz``, ``.zst``, or ``.zip``
    with one table). An index with a name becomes a column; any other index is dropped. Columns
    with equal names are numbered. A few words in a column of numbers count as missing, and a
    column whose numbers would lose their texts, as ``1.1`` and ``1.10``, holds ``Written`` texts.

    Args:
        path: path of the file.
        text: what the user says of how it is read; None finds it out.

    Raises:
        InputError: the file is missing or not a table, or has no rows or no columns.
    """
    if str(path) == STDIN:
        what = "the standard input"
        require(sys.stdin is not None, f"{what} is closed; send a table with a header to it")
        name, content = "-.csv", sys.stdin.buffer.read()
        require(bool(content), f"{what} is empty; send a table with a header to it")
    else:
        file = existing(path)
        name, what = file.name, repr(str(file))
        content = _readable(file.read_bytes, what)
    name, content = _unpacked(name, content, what)
    frame, notes = _readable(lambda: _parsed(name, content, what, text or TextFormat()), what)
    names, repeated = numbered(list(frame.columns))
    frame = frame.set_axis(names, axis=1)
    require(frame.shape[1] > 0, f"{what} has no columns")
    require(frame.shape[0] > 0, f"{what} is empty: it has columns but no rows")
    words = {str(name): words_in(column) for name, column in frame.items()}
    return ReadTable(frame, (*notes, *repeated, *name_kept(words)))


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that must exist.

    Raises:
        InputError: the path does not exist, or is a folder.
    """
    file = Path(path)
    require(not file.is_dir(), f"{str(file)!r} is a folder; expected a file")
    require(file.is_file(), f"no file {str(file)!r}")
    return file


def unreadable(file: Path | str, error: Exception) -> InputError:
    """Return the error for a file or its name that cannot be read, with the reason in one line."""
    what = repr(str(file)) if isinstance(file, Path) else file
    reason = " ".join(str(error).split()) or type(error).__name__
    return InputError(f"{what} cannot be read: {reason}")


def _readable(read: Callable[[], Any], what: str) -> Any:
    try:
        return read()
    except InputError:
        raise
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{what} is empty") from error
    except pd.errors.ParserWarning as error:
        raise InputError(f"{what} has rows with more fields than its header") from error
    except pd.errors.ParserError as error:
        # pandas names the place in its code before the reason.
        reason = " ".join(str(error).split("C error:")[-1].split())
        raise InputError(f"{what} is not a readable table: {reason}") from error
    except MemoryError:
        raise
    except Exception as error:  # of pyarrow, openpyxl, the packers, and their XML readers
        raise unreadable(what, error) from error


def _unpacked(name: str, content: bytes, what: str) -> tuple[str, bytes]:
    """Return the name without the ending of the packer, and the unpacked content."""
    inner, ending = os.path.splitext(name)
    if ending.lower() in PACKED:
        return inner, _readable(lambda: PACKED[ending.lower()](content), what)
    if ending.lower() == ".zip":
        return _readable(lambda: _only_table(content, what), what)  # type: ignore[no-any-return]
    return name, content


def _only_table(content: bytes, what: str) -> tuple[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [one for one in archive.namelist() if _is_table(one)]
        require(
            len(names) == 1,
            f"{what} holds {len(names)} tables{': ' if names else ''}{quoted(names[:5])}; unpack "
            "it and name one",
        )
        return Path(names[0]).name, archive.read(names[0])


def _is_table(name: str) -> bool:
    hidden = name.startswith("__MACOSX") or Path(name).name.startswith(".")
    return not hidden and Path(name).suffix.lower() in (*TEXT, *_BINARY)


def _parsed(name: str, content: bytes, what: str, how: TextFormat) -> Parsed:
    kind = Path(name).suffix.lower()
    require(not how.sheet or kind == ".xlsx", f"--sheet is about .xlsx; leave it out for {what}")
    if kind in TEXT:
        return read_text(content, what, usual=TEXT[kind], how=how)
    given = "--sep" if how.sep else "--encoding" if how.encoding else ""
    require(not given, f"{given} is about a text file such as .csv; leave it out for {what}")
    require(kind in _BINARY, f"cannot read {what}; expected a {FORMATS}")
    frame, notes = _BINARY[kind](content, how)
    frame = without_words(frame, how.missing)
    frame, written, _ = read_numerals(frame, decimal=how.decimal, keep_words=how.keep_na)
    return frame, (*notes, *written)


_BINARY: dict[str, Callable[[bytes, TextFormat], Parsed]] = {
    ".parquet": read_parquet,
    ".feather": read_feather,
    ".xlsx": read_excel,
    ".jsonl": read_json_lines,
}

FORMATS = (
    f"{', '.join((*TEXT, *_BINARY))} file, also packed ({', '.join((*PACKED, '.zip'))}); "
    "or .npz of arrays"
)
"""All formats of tables, in words."""


_UNREADABLE = (
    *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
    RuntimeError,  # an encrypted archive; NotImplementedError, an unknown compression, is one
)

_ADDED = "__MACOSX/"  # folder that macOS adds to an archive


def read_npz(file: Path, names: Sequence[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays ``names`` of ``file``, or all arrays; code in the file never runs.

    Raises:
        InputError: the file is not a complete ``.npz`` file, an array is missing, or a value is not
            an array of numbers or text.
    """
    # Checked first, because NumPy would read any other file as a pickle.
    require(zipfile.is_zipfile(file), f"{str(file)!r} is not a .npz file, or only a part of one")
    chosen = {}
    try:
        with np.load(file, allow_pickle=False) as arrays:
            known = [name for name in arrays if not name.startswith(_ADDED)]
            for name in known if names is None else names:
                require_known(name, known, f"no {name!r} in {str(file)!r}")
                chosen[name] = arrays[name]
                # NumPy returns the bytes of any other file in the archive.
                require(
                    isinstance(chosen[name], np.ndarray),
                    f"{name!r} in {str(file)!r} is not an array; write the file with numpy.savez",
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
    """Return records ``[n, d]`` as a table: columns ``x0``, ``x1``, ..., then the named columns.

    >>> array_table(np.zeros((3, 2)), y=np.ones(3)).columns.tolist()
    ['x0', 'x1', 'y']
    """
    features = pd.DataFrame(x, columns=[f"x{at}" for at in range(x.shape[1])])
    return pd.concat([features, pd.DataFrame(columns)], axis=1)
