"""Tables in workbooks, Parquet, Feather and JSON lines, with whole numbers kept exact."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.feather as pf  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from leakgauge.core.checks import InputError, require, require_known
from leakgauge.core.outside import parse_json
from leakgauge.data.columns import quoted
from leakgauge.data.missing import NONE_TOO, name_missing
from leakgauge.data.replaced import with_columns
from leakgauge.data.text_tables import TextFormat

Parsed = tuple[pd.DataFrame, Sequence[str]]
"""A table, and notes on what was found."""

_EXACT = 2.0**53
"""Smallest whole number above which floats merge different ones."""

_NULLABLE = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}


def read_parquet(content: bytes, how: TextFormat) -> Parsed:
    """Return the table in a Parquet file; an index with a name becomes a column."""
    frame = _with_index(pd.read_parquet(io.BytesIO(content)))
    return _exact(frame, lambda names: pq.read_table(io.BytesIO(content), columns=names)), ()


def read_feather(content: bytes, how: TextFormat) -> Parsed:
    """Return the table in a Feather file."""
    frame = _with_index(pd.read_feather(io.BytesIO(content)))
    return _exact(frame, lambda names: pf.read_table(io.BytesIO(content), columns=names)), ()


def read_json_lines(content: bytes, how: TextFormat) -> Parsed:
    """Return the table of objects, one a line."""
    rows = []
    for number, line in enumerate(content.decode("utf-8-sig").splitlines(), start=1):
        try:
            rows += [parse_json(line)] if line.strip() else []
        except InputError as error:
            raise ValueError(f"line {number} {error}") from error
    require(all(isinstance(row, dict) for row in rows), "a line of .jsonl is not an object {...}")
    frame = pd.DataFrame(rows)
    for name in _inexact(frame):
        values = [row.get(name) for row in rows]
        if all(value is None or type(value) is int for value in values):
            frame[name] = pd.array(values, dtype="Int64")
    return frame, ()


def read_excel(content: bytes, how: TextFormat) -> Parsed:
    """Return the table in a sheet of a workbook: the first one, or the one that is named."""
    with pd.ExcelFile(io.BytesIO(content), engine="openpyxl") as book:
        names = [str(name) for name in book.sheet_names]
        sheet = _sheet(how.sheet, names)
        # Without a header, because pandas numbers repeated names differently.
        cells = pd.read_excel(
            book, sheet_name=sheet, header=None, dtype=object, keep_default_na=False, na_values=[""]
        )
    require(not cells.empty, f"the sheet {sheet!r} is empty")
    header, rows = cells.iloc[0], cells.iloc[1:]
    nameless = header.isna()
    header = header.mask(nameless, [f"Unnamed: {at}" for at in range(len(header))])  # as of a CSV
    again = (rows == header).all(axis=1) & all(isinstance(one, str) for one in header)
    notes = [f"row {at + 1} repeats the header; left out" for at in rows.index[again]]
    if how.sheet is None and len(names) > 1:
        others = [name for name in names if name != sheet]
        notes.append(f"the sheet {sheet!r} was read, not {quoted(others)} (--sheet names another)")
    frame = rows[~again].reset_index(drop=True)
    words: dict[str, list[str]] = {}
    for at in range(frame.shape[1]):
        hidden = [] if how.keep_na else _words_among_numbers(frame.iloc[:, at])
        if hidden:
            words[str(header.iloc[at])] = hidden
            frame[frame.columns[at]] = frame.iloc[:, at].mask(frame.iloc[:, at].isin(hidden))
    return frame.infer_objects().set_axis(header.astype(str), axis=1), [
        *notes,
        *name_missing(words),
    ]


def _sheet(wanted: str | None, names: Sequence[str]) -> str:
    """Return the name of the sheet that is wanted by name or number, or of the first."""
    if wanted is None:
        return names[0]
    if wanted not in names and wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return names[int(wanted) - 1]
    require_known(wanted, names, f"--sheet is {wanted!r}, which the workbook does not have")
    return wanted


def _words_among_numbers(column: "pd.Series[Any]") -> list[str]:
    """Return the words for a missing value in a column of cells that hold numbers otherwise."""
    known = column.dropna()
    words = known.map(lambda one: isinstance(one, str) and one in NONE_TOO).astype(bool)
    others = known[~words]
    if others.empty or not others.map(lambda one: isinstance(one, int | float)).all():
        return []
    return [str(one) for one in known[words].unique()]


def _exact(frame: pd.DataFrame, read: Callable[[list[str]], "pa.Table"]) -> pd.DataFrame:
    """Return the table with large whole numbers as they are, where pandas made them floats."""
    names = _inexact(frame)
    if not names:
        return frame
    columns = read(names)
    exact = {
        str(name): columns[name].to_pandas(types_mapper=_NULLABLE.get)
        for name in names
        if name in columns.schema.names and columns.schema.field(name).type in _NULLABLE
    }
    return with_columns(frame, {name: column.array for name, column in exact.items()})


def _inexact(frame: pd.DataFrame) -> list[str]:
    floats = [str(name) for name, kind in frame.dtypes.items() if kind == np.float64]
    return [name for name in floats if bool((frame[name].abs() >= _EXACT).any())]


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named, allow_duplicates=True) if named else frame
