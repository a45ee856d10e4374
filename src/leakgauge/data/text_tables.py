"""Tables in text files, with a given or detected encoding and separator."""

import csv
import io
import re
import warnings
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from leakgauge.core.checks import InputError, require
from leakgauge.data.missing import MISSING, NONE_TOO, name_missing, refuse_absent
from leakgauge.data.numerals import THOUSANDS, read_numerals
from leakgauge.data.tidying import numbered
from leakgauge.data.written import read_values, remember

SEPARATORS = ",;\t|"
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
ALIKE = 0.9
"""Smallest share of rows with as many columns as the header, for the right separator."""

NOT_OF_FILES = ("idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined")
"""Python's text encodings in which no file is written."""

SAMPLE = 50_000
"""Number of characters examined to find the separator."""


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
    text, notes = _decoded(content, what, how.encoding)
    text, again = _without_headers(text)
    separator = how.sep or separator_of(text, usual)
    if how.sep is None and separator != usual:
        notes.append(f"columns are separated by {NAMES[separator]}s (--sep names another)")
    top = _parsed(text, separator, header=None, nrows=1, dtype=object, na_filter=False)
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
        frame = _parsed(
            text, separator, index_col=False, low_memory=False,
            keep_default_na=False, na_values=[*how.words, *how.missing],
        )  # fmt: skip
    if repeated:  # pandas numbers them too, but differently
        frame = frame.set_axis(names, axis=1)
    short = _short_rows(frame, text, separator, what)
    frame, named = _with_texts(frame, text, separator, how)
    likely = "," if separator == ";" else "." if _has_fractions(frame) else None
    frame, written, mark = read_numerals(
        frame, decimal=how.decimal, usual=likely, keep_words=how.keep_na
    )
    if mark == ",":
        frame, dotted = _with_dots(frame, text, separator, how)
        written += dotted
    return frame, [*notes, *again, *short, *named, *written, *repeated]


def _short_rows(frame: pd.DataFrame, text: str, separator: str, what: str) -> list[str]:
    """Return a note on rows with fewer fields than the header, whose last columns pandas fills.

    Raises:
        InputError: they are more than half of all rows.
    """
    if not frame.iloc[:, -1].isna().any():
        return []
    width = frame.shape[1]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
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
    frame: pd.DataFrame, text: str, separator: str, how: TextFormat
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with the texts that its columns lost, and notes on missing numbers."""
    lost = [at for at in range(frame.shape[1]) if _may_lose(frame.iloc[:, at])]
    if not lost:
        refuse_absent(how.missing, ())
        return frame, []
    texts = _parsed(
        text, separator, index_col=False, usecols=lost, dtype=str, na_filter=False
    ).set_axis(frame.columns[lost], axis=1)
    changed: dict[str, Any] = {}
    words: dict[str, list[str]] = {}
    met: set[str] = set()
    for name in map(str, texts.columns):
        column, raw = frame[name], texts[name]
        absent = raw[column.isna().to_numpy()]
        met |= set(how.missing) & set(absent.unique())
        raw = raw.mask(raw.isin(["", *how.missing]))
        if _is_text(column):
            if raw.isna().all():
                continue
            number = None if how.keep_na else _number_or_none(raw)
            changed[name] = raw if number is None else number
        else:
            raw = raw.mask(raw.isin(NONE_TOO) & column.isna())
            changed[name] = remember(raw, column)
        if changed[name].isna().sum() > 0:
            gone = texts[name][changed[name].isna().to_numpy()]
            words[str(name)] = [one for one in gone.unique() if one in NONE_TOO - {*how.missing}]
    refuse_absent(how.missing, met)
    return frame.assign(**changed), name_missing(words)


def _with_dots(
    frame: pd.DataFrame, text: str, separator: str, how: TextFormat
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with dots between thousands understood, where decimal marks are commas."""
    floats = [at for at in range(frame.shape[1]) if frame.dtypes.iloc[at] == np.float64]
    if not floats:
        return frame, []
    texts = _parsed(text, separator, index_col=False, usecols=floats, dtype=str, na_filter=False)
    dotted = {}
    for name, raw in texts.set_axis(frame.columns[floats], axis=1).items():
        raw = raw.mask(raw.isin([*how.words, *how.missing]))
        known = raw.dropna()
        dots = known.str.contains(".", regex=False)
        if dots.any() and known.str.fullmatch(THOUSANDS.pattern).all():
            dotted[name] = raw
    if not dotted:
        return frame, []
    read, notes, _ = read_numerals(pd.DataFrame(dotted), decimal=",")
    return frame.assign(**{str(name): column for name, column in read.items()}), notes


def _has_fractions(frame: pd.DataFrame) -> bool:
    """Return whether a column holds numbers with a point and decimals."""
    columns = (read_values(column) for _, column in frame.items())
    floats = (column.to_numpy() for column in columns if column.dtype == np.float64)
    return any(bool((one[np.isfinite(one)] % 1 != 0).any()) for one in floats)


def _may_lose(column: "pd.Series[Any]") -> bool:
    """Return whether a column as parsed may have lost a text."""
    if _is_text(column):
        return bool(column.isna().any() or (column == "None").any())
    return bool(column.isna().any() or column.duplicated().any())


def _is_text(column: "pd.Series[Any]") -> bool:
    """Return whether a column as parsed is text, or has no value at all."""
    known = column.dropna()
    return known.empty or dtypes.infer_dtype(known, skipna=True) == "string"


def _without_headers(text: str) -> tuple[str, list[str]]:
    """Return the text without further lines that equal the header, and a note on them."""
    head, newline, rest = text.partition("\n")
    line = head.rstrip("\r")
    if not newline or line not in rest or line.count('"') % 2 or not re.search(r"[^\d\W]", line):
        return text, []
    lines = rest.split("\n")
    at = [number for number, one in enumerate(lines, start=2) if one.rstrip("\r") == line]
    if not at or not any(sign in line for sign in SEPARATORS):
        return text, []
    kept = [one for one in lines if one.rstrip("\r") != line]
    where = ", ".join(map(str, at[:6])) + (f" and {len(at) - 6} more" if len(at) > 6 else "")
    note = f"line{'s' if len(at) > 1 else ''} {where} repeat{'' if len(at) > 1 else 's'} the header"
    return "\n".join([head, *kept]), [f"{note}; left out"]


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


def _decoded(content: bytes, what: str, encoding: str | None) -> tuple[str, list[str]]:
    if encoding is not None:
        require(
            encoding.lower().replace("-", "_") not in NOT_OF_FILES,
            f"--encoding is {encoding!r}, which writes names or code, not files; take utf-8, "
            "utf-16, cp1252 or latin-1",
        )
        try:
            return content.decode(encoding), []
        except LookupError as error:
            raise InputError(
                f"--encoding is {encoding!r}, which Python does not know; take utf-8, utf-16, "
                "cp1252 or latin-1"
            ) from error
        except UnicodeError as error:
            raise InputError(f"{what} is not {encoding} text; name another --encoding") from error
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return content.decode("utf-16"), ["the text is UTF-16 (--encoding names another)"]
        except UnicodeError:
            pass
    require(b"\0" not in content[:1000], f"{what} is not a text file; name its --encoding")
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeError:
        text = content.decode("cp1252", errors="replace")
        return text, ["the text is not UTF-8; read as Windows-1252 (--encoding names another)"]


def _parsed(text: str, separator: str, **how: Any) -> pd.DataFrame:
    frame: pd.DataFrame = pd.read_csv(io.StringIO(text), sep=separator, **how)
    return frame


def _number_or_none(texts: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """Return texts as numbers if all but words for a missing number are numbers, else None."""
    without = texts.mask(texts.isin(NONE_TOO))
    as_numbers = pd.to_numeric(without, errors="coerce")
    whole = bool((as_numbers.notna() == without.notna()).all() and without.notna().any())
    return remember(without, as_numbers) if whole else None
