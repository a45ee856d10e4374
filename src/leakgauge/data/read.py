"""Read a table from a file."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.data.columns import refuse_repeated

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Words that mean a missing value: those of pandas except "None", which may be an answer."""

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table in a ``.csv`` or ``.tsv`` file (UTF-8, with a header) or ``.parquet`` file.

    An index with a name becomes a column; any other index is dropped.

    Raises:
        InputError: the file is missing or not a table, has no rows or no columns, or has two
            columns with one name.

    >>> read_table("users.xlsx")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: no file 'users.xlsx'
    """
    file = existing(path)
    readers = {".parquet": _read_parquet, **dict.fromkeys(_SEPARATORS, _read_text)}
    reader = readers.get(file.suffix.lower())
    if reader is None:
        raise InputError(f"cannot read {str(file)!r}; expected a .csv, .tsv or .parquet file")
    frame = _readable(reader, file)
    require(frame.shape[1] > 0, f"{str(file)!r} has no columns")
    require(frame.shape[0] > 0, f"{str(file)!r} is empty: it has columns but no rows")
    return frame


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that must exist.

    Raises:
        InputError: the path does not exist, or is a folder.
    """
    file = Path(path)
    require(not file.is_dir(), f"{str(file)!r} is a folder; expected a file")
    require(file.is_file(), f"no file {str(file)!r}")
    return file


def unreadable(file: Path, error: Exception) -> InputError:
    """Return the error for a file that a library cannot read: the library's reason in one line."""
    return InputError(f"{str(file)!r} cannot be read: {' '.join(str(error).split())}")


def _readable(reader: Callable[[Path], pd.DataFrame], file: Path) -> pd.DataFrame:
    try:
        return reader(file)
    except InputError:
        raise
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{str(file)!r} is empty") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{str(file)!r} is not UTF-8 text; save it as UTF-8") from error
    except pd.errors.ParserWarning as error:
        raise InputError(f"{str(file)!r} has rows with more fields than its header") from error
    except pd.errors.ParserError as error:
        # pandas puts the place in its own code before the reason.
        reason = " ".join(str(error).split("C error:")[-1].split())
        raise InputError(f"{str(file)!r} is not a readable table: {reason}") from error
    except (OSError, ValueError, NotImplementedError) as error:
        # The errors of pyarrow are among these.
        raise unreadable(file, error) from error


def _read_text(file: Path) -> pd.DataFrame:
    separator = _SEPARATORS[file.suffix.lower()]
    # pandas renames repeated names, so they are looked up in the raw header.
    top = pd.read_csv(file, sep=separator, header=None, nrows=1, dtype=object, na_filter=False)
    header = [str(name) for name in top.iloc[0]]
    refuse_repeated(header, repr(str(file)))
    other = next((s for s in ";\t,|" if s != separator and s in header[0]), None)
    require(
        len(header) > 1 or other is None,
        f"{str(file)!r} has one column, {header[0][:60]!r}; is it separated by {other!r}? "
        f"expected {separator!r}",
    )
    with warnings.catch_warnings():
        # pandas only warns when it cuts the end of rows that are longer than the header.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = pd.read_csv(
            file,
            sep=separator,
            index_col=False,
            low_memory=False,
            keep_default_na=False,
            na_values=list(MISSING),
        )
    for name in frame.columns[(frame == "None").any()]:
        frame[name] = _numbers_or_none(frame[name])
    return frame


def _numbers_or_none(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return the column as numbers if all its values but "None" are numbers, else unchanged."""
    without = column.mask(column == "None")
    as_numbers = pd.to_numeric(without, errors="coerce")
    return as_numbers if bool((as_numbers.notna() == without.notna()).all()) else column


def _read_parquet(file: Path) -> pd.DataFrame:
    frame = pd.read_parquet(file)
    named = [name for name in frame.index.names if name is not None]
    refuse_repeated([*named, *frame.columns], repr(str(file)))
    return frame.reset_index(level=named) if named else frame
