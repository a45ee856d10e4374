"""Tables in text files, with a given or detected encoding and separator."""

import csv
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from leakgauge.core.checks import require
from leakgauge.data.missing import MISSING, NONE_TOO, name_missing, refuse_absent
from leakgauge.data.number_texts import FRACTIONS, INTEGERS, WHOLE, in_one_form
from leakgauge.data.numerals import THOUSANDS, read_numerals
from leakgauge.data.replaced import with_columns
from leakgauge.data.text_encoding import as_utf8
from leakgauge.data.text_parsing import parsed, parsed_whole
from leakgauge.data.tidying import numbered
from leakgauge.data.written import has_fractions, read_values, remember

SEPARATORS = ",;\t|"
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
ALIKE = 0.9
"""Smallest share of rows with as many columns as the header, for the right separator."""

SAMPLE = 50_000
"""Number of characters examined to find the separator."""

CELLS = 10**7
"""Number of texts held at once next to the table."""


@dataclass(frozen=True)
class TextFormat:
    """What the user says of how a table is read; each default finds it out.

    Attributes:
        sep: separator of the columns; None detects it.
        encoding: encoding; None takes UTF-8 or UTF-16, or else Windows-1252.
        decimal: decimal mark, ``.`` or ``,``; None detects it.
        sheet: name of a sheet of a workbook, or its number from 1; None takes the first.
        missing: words that count as missing in every column.
        keep_na: whether words such as NA stay values among numbers, too.
    """

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    sheet: str | None = None
    missing: tuple[str, ...] = ()
    keep_na: bool = False

    def __post_init__(self) -> None:
        require(
            self.sep is None or len(self.sep) == 1,
            f"--sep is {self.sep!r}; expected one character, or tab",
        )

    @classmethod
    def of(cls, sep: str | None, encoding: str | None, **more: Any) -> "TextFormat | None":
        """Return the format of the settings, or None without any; ``tab`` and ``\\t`` are a tab.

        >>> TextFormat.of("tab", None).sep
        '\\t'
        """
        given = {name: value for name, value in more.items() if value}
        if not sep and not encoding and not given:
            return None
        return cls("\t" if sep in ("tab", "\\t") else sep, encoding or None, **given)

    @property
    def given(self) -> str:
        """The options that are given, as a user writes them."""
        names = [one.name for one in fields(self) if getattr(self, one.name)]
        return ", ".join(f"--{name.replace('_', '-')}" for name in names)

    @property
    def words(self) -> tuple[str, ...]:
        """The words for a missing value among numbers."""
        return ("",) if self.keep_na else MISSING


def read_text(
    content: bytes, what: str, *, usual: str, how: TextFormat
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table in a text with a header, and notes on what was found.

    Columns of numbers remember their texts where numbers alone would lose some (``Written``), and
    words such as NA stay values of columns of text.

    Args:
        content: content of the file.
        what: the file, for messages.
        usual: the usual separator for the file's ending.
        how: what the user says of the text.

    Raises:
        InputError: the text is not a table.
    """
    content, notes = as_utf8(content, what, how.encoding)
    content, again = _without_headers(content)
    separator = how.sep or separator_of(content[: 4 * SAMPLE + 4].decode("utf-8", "ignore"), usual)
    if how.sep is None and separator != usual:
        notes.append(f"columns are separated by {NAMES[separator]}s (--sep names another)")
    top = parsed(content, separator, header=None, nrows=1, dtype=object, na_filter=False)
    header = [str(name) for name in top.iloc[0]]
    other = next((s for s in SEPARATORS if s != separator and s in header[0]), None)
    require(
        len(header) > 1 or other is None,
        f"{what} has one column, {header[0][:60]!r}; name its separator by --sep",
    )
    names, repeated = numbered(header)
    with warnings.catch_warnings():
        # pandas only warns when it cuts the end of rows that are longer than the header.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        frame = parsed_whole(
            content, separator, keep_default_na=False, na_values=[*how.words, *how.missing]
        )
    if repeated:  # pandas numbers them too, but differently
        frame = frame.set_axis(names, axis=1)
    short = _short_rows(frame, content, separator, what)
    frame, named = _with_texts(frame, content, separator, how)
    likely = "," if separator == ";" else "." if _has_fractions(frame) else None
    frame, written, mark = read_numerals(
        frame, decimal=how.decimal, usual=likely, keep_words=how.keep_na
    )
    if mark == ",":
        frame, dotted = _with_dots(frame, content, separator, how)
        written += dotted
    return frame, [*notes, *again, *short, *named, *written, *repeated]


def _short_rows(frame: pd.DataFrame, content: bytes, separator: str, what: str) -> list[str]:
    """Return a note on rows with fewer fields than the header, whose last columns pandas fills.

    Raises:
        InputError: they are more than half of all rows.
    """
    if not frame.iloc[:, -1].isna().any():
        return []
    width = frame.shape[1]
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    rows = csv.reader(lines, delimiter=separator)
    try:
        at = [rows.line_num for row in rows if len(row) < width and not _is_blank(row)]
    except csv.Error:  # a field of more than 100,000 characters
        return []
    if not at:
        return []
    said = f"{len(at)} row{'s have' if len(at) > 1 else ' has'} fewer fields than the header"
    require(
        2 * len(at) <= len(frame),
        f"{what}: {said}, of {len(frame)}; name the separator by --sep, or correct the header",
    )
    return [f"{said} (line {at[0]}); the rest counts as missing"]


def _with_texts(
    frame: pd.DataFrame, content: bytes, separator: str, how: TextFormat
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the texts that its columns lost, and notes on missing numbers."""
    changed: dict[str, Any] = {}
    words: dict[str, list[str]] = {}
    met: set[str] = set()
    for name, raw in _texts_of(_losing(frame, content, separator, how), frame, content, separator):
        column = frame[name]
        absent = raw[column.isna().to_numpy()].unique()
        met |= set(how.missing) & set(absent)
        known = raw.mask(raw.isin(["", *how.missing]))
        if _is_text(column):
            if known.isna().all():
                continue
            number = None if how.keep_na else _number_or_none(known)
            changed[name] = known if number is None else number
        else:
            changed[name] = remember(known.mask(known.isin(NONE_TOO) & column.isna()), column)
        if changed[name].isna().any():
            gone = raw[changed[name].isna().to_numpy()]
            words[name] = [one for one in gone.unique() if one in NONE_TOO - {*how.missing}]
    refuse_absent(how.missing, met)
    return with_columns(frame, changed), name_missing(words)


def _losing(frame: pd.DataFrame, content: bytes, separator: str, how: TextFormat) -> list[int]:
    """Return the positions of the columns that may have lost a text."""
    may = [at for at in range(frame.shape[1]) if _may_lose(frame.iloc[:, at])]
    if how.missing:
        return may
    kinds = {at: kind for at in may if (kind := _kind_of_numbers(frame.iloc[:, at])) is not None}
    kept = in_one_form(content, separator, kinds)
    return [at for at in may if at not in kept]


def _kind_of_numbers(column: "pd.Series[Any]") -> str | None:
    """Return the kind of a column of numbers for ``in_one_form``; None for another column."""
    if dtypes.is_integer_dtype(column.dtype):
        return INTEGERS
    if column.dtype != np.float64:
        return None
    return FRACTIONS if has_fractions(column) else WHOLE


def _texts_of(
    columns: Sequence[int], frame: pd.DataFrame, content: bytes, separator: str
) -> Iterator[tuple[str, "pd.Series[Any]"]]:
    """Yield names and texts of columns, read some columns at a time."""
    count = max(1, CELLS // max(1, len(frame)))
    for start in range(0, len(columns), count):
        some = list(columns[start : start + count])
        texts = parsed(
            content, separator, index_col=False, usecols=some, dtype=str, na_filter=False
        )
        for place, at in enumerate(some):
            yield str(frame.columns[at]), texts.iloc[:, place].rename(str(frame.columns[at]))


def _with_dots(
    frame: pd.DataFrame, content: bytes, separator: str, how: TextFormat
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with dots between thousands understood, where decimal marks are commas."""
    floats = [at for at in range(frame.shape[1]) if frame.dtypes.iloc[at] == np.float64]
    dotted = {}
    for name, raw in _texts_of(floats, frame, content, separator):
        raw = raw.mask(raw.isin([*how.words, *how.missing]))
        known = raw.dropna()
        dots = known.str.contains(".", regex=False)
        if dots.any() and known.str.fullmatch(THOUSANDS.pattern).all():
            dotted[name] = raw
    if not dotted:
        return frame, []
    read, notes, _ = read_numerals(pd.DataFrame(dotted), decimal=",")
    return with_columns(frame, {str(name): column for name, column in read.items()}), notes


def _has_fractions(frame: pd.DataFrame) -> bool:
    """Return whether a column holds numbers with a point and decimals."""
    columns = (read_values(column) for _, column in frame.items())
    return any(has_fractions(column) for column in columns if column.dtype == np.float64)


def _may_lose(column: "pd.Series[Any]") -> bool:
    """Return whether a column as parsed may have lost a text."""
    if _is_text(column):
        return bool(column.isna().any() or (column == "None").any())
    return bool(column.isna().any() or column.duplicated().any())


def _is_text(column: "pd.Series[Any]") -> bool:
    """Return whether a column as parsed is text, or has no value at all."""
    known = column.dropna()
    return known.empty or dtypes.infer_dtype(known, skipna=True) == "string"


def _without_headers(content: bytes) -> tuple[bytes, list[str]]:
    """Return the text without further lines that equal the header, and a note on them."""
    end = content.find(b"\n")
    line = content[: max(end, 0)].rstrip(b"\r")
    if not line or content.find(b"\n" + line, len(line)) < 0 or line.count(b'"') % 2:
        return content, []
    if not re.search(r"[^\d\W]", line.decode("utf-8", "replace")):
        return content, []
    first, *lines = content.split(b"\n")
    at = [number for number, one in enumerate(lines, start=2) if one.rstrip(b"\r") == line]
    if not at or not any(sign.encode() in line for sign in SEPARATORS):
        return content, []
    kept = [one for one in lines if one.rstrip(b"\r") != line]
    where = ", ".join(map(str, at[:6])) + (f" and {len(at) - 6} more" if len(at) > 6 else "")
    note = f"line{'s' if len(at) > 1 else ''} {where} repeat{'' if len(at) > 1 else 's'} the header"
    return b"\n".join([first, *kept]), [f"{note}; left out"]


def separator_of(text: str, usual: str) -> str:
    """Return the separator that splits the first rows into equally many columns.

    >>> separator_of("a;b;c\\n1,5;2;3\\n", ",")
    ';'
    """
    lines = text[:SAMPLE].splitlines(keepends=True)
    if len(text) > SAMPLE:  # the last one may be cut
        lines = lines[:-1] or lines

    def fit(separator: str) -> tuple[int, bool]:
        rows = csv.reader(lines, delimiter=separator)
        widths = [len(row) for row in rows if not _is_blank(row)]
        width = widths[0] if widths else 1
        splits = width > 1 and sum(one == width for one in widths) >= ALIKE * len(widths)
        return width if splits else 1, separator == usual

    try:
        return max(SEPARATORS, key=fit)
    except csv.Error:
        return usual


def _is_blank(row: list[str]) -> bool:
    """Return whether a line of a text holds no row."""
    return len(row) < 2 and not "".join(row).strip()


def _number_or_none(texts: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """Return texts as numbers if all but words for a missing number are numbers, else None."""
    without = texts.mask(texts.isin(NONE_TOO))
    as_numbers = pd.to_numeric(without, errors="coerce")
    whole = bool((as_numbers.notna() == without.notna()).all() and without.notna().any())
    return remember(without, as_numbers) if whole else None
