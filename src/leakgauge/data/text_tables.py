"""Tables in text files, with a given or detected encoding and separator."""

import csv
import io
import re
import warnings
from typing import Any

import pandas as pd

from leakgauge.core.checks import InputError, require
from leakgauge.data.tidying import numbered

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Words for a missing value: those of pandas except "None", which may be an answer."""

SEPARATORS = ",;\t|"
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
ALIKE = 0.9
"""Smallest share of rows with as many columns as the header, for the right separator."""

SAMPLE = 50_000
"""Number of characters examined to find the separator."""

_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")


def read_text(
    content: bytes, what: str, *, usual: str, sep: str | None, encoding: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table in a text with a header, and notes on what was found.

    Args:
        content: content of the file.
        what: the file, for messages.
        usual: the usual separator for the file's ending.
        sep: the separator; None detects it.
        encoding: encoding of the text; None takes UTF-8 or UTF-16, or else Windows-1252.

    Raises:
        InputError: the text is not a table.
    """
    text, notes = _decoded(content, what, encoding)
    separator = sep or separator_of(text, usual)
    if sep is None and separator != usual:
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
            keep_default_na=False, na_values=list(MISSING),
        )  # fmt: skip
    if repeated:  # pandas numbers them too, but differently
        frame = frame.set_axis(names, axis=1)
    if separator == ";":
        frame, changed = _with_decimal_commas(frame)
        notes += changed
    for name in frame.columns[(frame == "None").any()]:
        frame[name] = _numbers_or_none(frame[name])
    return frame, [*notes, *repeated]


def separator_of(text: str, usual: str) -> str:
    """Return the separator that splits the first rows into equally many columns.

    >>> separator_of("a;b;c\\n1,5;2;3\\n", ",")
    ';'
    """
    lines = text[:SAMPLE].splitlines(keepends=True)
    lines = lines[:-1] or lines  # The last one may be cut.

    def fit(separator: str) -> tuple[int, bool]:
        widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        width = widths[0] if widths else 1
        splits = width > 1 and sum(one == width for one in widths) >= ALIKE * len(widths)
        return width if splits else 1, separator == usual

    try:
        return max(SEPARATORS, key=fit)
    except csv.Error:
        return usual


def _decoded(content: bytes, what: str, encoding: str | None) -> tuple[str, list[str]]:
    if encoding is not None:
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


def _with_decimal_commas(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with columns such as "3,14" as numbers, and a note."""
    changed = {}
    for name, column in frame.items():
        words = column.dropna()
        if words.empty or not all(isinstance(one, str) for one in words):
            continue
        with_comma = words.map(lambda one: bool(_DECIMAL_COMMA.fullmatch(one.strip())))
        plain = pd.to_numeric(words[~with_comma], errors="coerce").notna()
        if with_comma.any() and plain.all():
            changed[str(name)] = pd.to_numeric(column.str.strip().str.replace(",", "."))
    if not changed:
        return frame, []
    return frame.assign(**changed), ["numbers have decimal commas, as 3,14"]


def _numbers_or_none(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return the column as numbers if all its values but "None" are numbers, else unchanged."""
    without = column.mask(column == "None")
    as_numbers = pd.to_numeric(without, errors="coerce")
    return as_numbers if bool((as_numbers.notna() == without.notna()).all()) else column
