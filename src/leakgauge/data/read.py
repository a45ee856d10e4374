"""Read a table from a file or from the standard input, and arrays from a ``.npz`` file."""

import bz2
import gzip
import io
import json
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

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.data.columns import quoted
from leakgauge.data.text_tables import MISSING, read_text
from leakgauge.data.tidying import numbered, numbers_kept

STDIN = "-"
"""The path of the standard input."""

TEXT = {".csv": ",", ".tsv": "\t", ".txt": "\t"}
"""Endings of text files, with their usual separators."""

Parsed = tuple[pd.DataFrame, Sequence[str]]
"""A table, and notes on what was found."""

PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
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


@dataclass(frozen=True)
class TextFormat:
    """Separator and encoding of a table in a text file.

    Attributes:
        sep: separator of the columns; None detects it.
        encoding: encoding; None takes UTF-8 or UTF-16, or else Windows-1252.
    """

    sep: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        require(
            self.sep is None or len(self.sep) == 1,
            f"--sep is {self.sep!r}; expected one character, or tab",
        )

    @classmethod
    def of(cls, sep: str | None, encoding: str | None) -> "TextFormat | None":
        """Return the format of the settings, or None without any; ``tab`` and ``\\t`` are a tab.

        >>> TextFormat.of("tab", None)
        TextFormat(sep='\\t', encoding=None)
        """
        if not sep and not encoding:
            return None
        return cls("\t" if sep in ("tab", "\\t") else sep, encoding or None)


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table that ``read_noted`` reads, without the notes.

    >>> read_table("users.xlsx")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: no file 'users.xlsx'
    """
    return read_noted(path).frame


def read_noted(path: str | os.PathLike[str], text: TextFormat | None = None) -> ReadTable:
    """Return the table in a file with a header, or on the standard input (``-``), with notes.

    ``.csv``, ``.tsv`` and ``.txt`` may be packed (``.gz``, ``.bz2``, ``.xz``, or ``.zip`` with one
    table); ``.jsonl`` has one object per line; ``.xlsx`` gives its first sheet; ``.parquet`` and
    ``.feather`` are read unchanged. An index with a name becomes a column; any other index is
    dropped. Columns with equal names are numbered, and a few values that are not numbers in a
    column of numbers count as missing.

    Args:
        path: path of the file.
        text: format of a text file; None detects separator and encoding.

    Raises:
        InputError: the file is missing or not a table, or has no rows or no columns.
    """
    if str(path) == STDIN:
        name, content = "-.csv", sys.stdin.buffer.read()
        what = "the standard input"
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
    frame, junk = numbers_kept(frame)
    return ReadTable(frame, (*notes, *repeated, *junk))


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
    return InputError(f"{what} cannot be read: {' '.join(str(error).split())}")


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
    except (OSError, ValueError, NotImplementedError, KeyError, EOFError, RuntimeError) as error:
        # The errors of pyarrow, openpyxl and the packers are among these.
        raise unreadable(what, error) from error
    except (zipfile.BadZipFile, lzma.LZMAError) as error:
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


def _parsed(name: str, content: bytes, what: str, text: TextFormat) -> Parsed:
    kind = Path(name).suffix.lower()
    if kind in TEXT:
        return read_text(content, what, usual=TEXT[kind], sep=text.sep, encoding=text.encoding)
    given = "--sep" if text.sep else "--encoding" if text.encoding else ""
    require(not given, f"{given} is about a text file such as .csv; leave it out for {what}")
    if kind not in _BINARY:
        raise InputError(
            f"cannot read {what}; expected a {', '.join(TEXT)}, {', '.join(_BINARY)} file, or "
            "one of the first three packed (.gz, .zip)"
        )
    return _BINARY[kind](content)


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named, allow_duplicates=True) if named else frame


def _read_excel(content: bytes) -> Parsed:
    with pd.ExcelFile(io.BytesIO(content), engine="openpyxl") as book:
        first, *others = [str(name) for name in book.sheet_names]
        # Without a header, because pandas numbers repeated names differently.
        how: dict[str, Any] = {"header": None, "dtype": object, "keep_default_na": False}
        cells = pd.read_excel(book, **how, na_values=list(MISSING))
    require(not cells.empty, f"the sheet {first!r} is empty")
    frame = cells.iloc[1:].reset_index(drop=True).infer_objects()
    left = f"the sheet {first!r} was read, not {quoted(others)}"
    return frame.set_axis(cells.iloc[0].astype(str), axis=1), [left] if others else []


def _read_json_lines(content: bytes) -> Parsed:
    rows = [json.loads(line) for line in content.decode("utf-8-sig").splitlines() if line.strip()]
    require(all(isinstance(row, dict) for row in rows), "a line of .jsonl is not an object {...}")
    return pd.DataFrame(rows), ()


_BINARY: dict[str, Callable[[bytes], Parsed]] = {
    ".parquet": lambda content: (_with_index(pd.read_parquet(io.BytesIO(content))), ()),
    ".feather": lambda content: (_with_index(pd.read_feather(io.BytesIO(content))), ()),
    ".xlsx": _read_excel,
    ".jsonl": _read_json_lines,
}


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
