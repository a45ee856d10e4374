"""Columns of numbers as people write them: ``$31,321.96``, ``31.321,96``, words among numbers."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from leakgauge.core.names import few
from leakgauge.data.columns import quoted
from leakgauge.data.missing import is_placeholder
from leakgauge.data.replaced import with_columns
from leakgauge.data.written import remember

MOST_JUNK = 0.05
"""Largest share of other values in a column of numbers."""

MOST_JUNK_WORDS = 10
"""Largest number of different other values in a column of numbers."""

FEWEST_NUMBERS = 11
"""Smallest number of different numbers; with fewer, the column may hold categories."""

MARKS = (".", ",")
"""Decimal marks."""

_EXAMINED = 1000
"""Number of different texts that show whether a column can hold numbers."""

_SIGN, _GAP = (
    "+\\-\u2212",
    "'\u2019 \u00a0\u202f",
)
"""Signs and marks between thousands, also in typographic form."""

_UNIT = r"(?:[$€£¥₹₩₽₺₫₪]|EUR|USD|GBP|CHF|%)?"
_AROUND = re.compile(
    rf"(\()?([{_SIGN}]?){_UNIT}\s*([{_SIGN}]?)([.,]?\d(?:[\d.,{_GAP}]*\d)?)\s*{_UNIT}(\))?"
)
_BODY = {
    mark: re.compile(rf"(\d+|\d{{1,3}}([{other}{_GAP}])\d{{3}}(?:\2\d{{3}})*)?(?:[{mark}](\d+))?")
    for mark, other in ((".", ","), (",", "."))
}
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})*")
"""A whole number that may have dots between thousands."""


def cleaned(text: str, mark: str) -> str | None:
    """Return a number as Python writes it, or None if the text is not one.

    Args:
        text: a number with or without currency, sign, parentheses and marks between thousands.
        mark: the decimal mark.

    >>> cleaned("$31,321.96", "."), cleaned("31.321,96", ","), cleaned("(1 200)", ",")
    ('31321.96', '31321.96', '-1200')
    >>> cleaned("31.321,96", ".") is None
    True
    """
    around = _AROUND.fullmatch(text.strip())
    if around is None:
        return None
    opened, before, after, body, closed = around.groups()
    number = _BODY[mark].fullmatch(body)
    if number is None or bool(opened) != bool(closed) or (before and after):
        return None
    whole = re.sub(r"\D", "", number[1] or "0")
    minus = bool(opened) != ((before or after) in ("-", "\u2212") and bool(before or after))
    return f"{'-' if minus else ''}{whole}{'.' + number[3] if number[3] else ''}"


def read_numerals(
    frame: pd.DataFrame,
    *,
    decimal: str | None = None,
    usual: str | None = None,
    keep_words: bool = False,
) -> tuple[pd.DataFrame, list[str], str | None]:
    """Return the table with columns of written numbers as numbers, notes, and the mark.

    A column counts as numeric if it has at least ``FEWEST_NUMBERS`` different numbers (any number
    with ``usual`` decimal commas) and at most a share of ``MOST_JUNK`` other values, besides words
    that stand for a missing number. Text of plain numbers alone stays text.

    The mark is the decimal mark that the table shows; None if it shows none or both.

    Args:
        frame: the table.
        decimal: decimal mark of all columns; None finds it for each.
        usual: decimal mark of a column that fits both, if no other column decides.
        keep_words: whether words among numbers stay values.

    >>> frame = pd.DataFrame({"limit": [str(n) for n in range(30)] + ["n/a?"]})
    >>> read_numerals(frame)[1]
    ["column 'limit' holds numbers but for 1 value, 'n/a?', which counts as missing"]
    """
    texts = {str(name): read for name, one in frame.items() if (read := _examined(one)) is not None}
    marks = {read.mark for read in texts.values() if read.mark and read.is_formatted(read.mark)}
    seen = decimal or (marks.pop() if len(marks) == 1 else None)
    found = seen or usual
    changed: dict[str, Any] = {}
    notes: list[str] = []
    for name, read in texts.items():
        mark = decimal or read.mark or found
        if mark is None:
            notes.append(read.ambiguous(name))
            continue
        number, said = _numbers(read, name, mark, usual=usual, keep_words=keep_words)
        if number is not None:
            changed[name] = number
            if read.mark is None and not decimal:
                said.append(read.assumed(name, mark))
        notes += said
    return with_columns(frame, changed), list(dict.fromkeys(notes)), seen


@dataclass(frozen=True, eq=False)
class _Numerals:
    """The different texts of a column that may hold numbers.

    Attributes:
        column: the column as text.
        counts: number of rows by text.
        plain: texts that are numbers as they stand.
        by_mark: the number of each text by decimal mark; None where it is not one.
        mark: the decimal mark that fits; None where both do and give different numbers.
    """

    column: "pd.Series[Any]"
    counts: Mapping[str, int]
    plain: frozenset[str]
    by_mark: Mapping[str, Mapping[str, str | None]]
    mark: str | None

    def is_formatted(self, mark: str) -> bool:
        """Return whether the column holds numbers that Python would read otherwise, or not."""
        read = self.by_mark[mark]
        return any(
            one is not None and (text not in self.plain or (mark == "," and "." in text))
            for text, one in read.items()
        )

    def example(self) -> str:
        """Return a text that decides nothing between two marks."""
        point, comma = (self.by_mark[mark] for mark in MARKS)
        return next(text for text in point if point[text] != comma[text])

    def ambiguous(self, name: str) -> str:
        """Return the note for a column that stays text, because both marks fit."""
        text = self.example()
        point, comma = (self.by_mark[mark][text] for mark in MARKS)
        return (
            f"column {name!r} stays text: {text!r} can mean {point} or {comma}; say which by "
            "--decimal . or --decimal ,"
        )

    def assumed(self, name: str, mark: str) -> str:
        """Return the note for a column whose decimal mark was taken from the rest of the table."""
        text, other = self.example(), MARKS[mark == "."]
        return (
            f"column {name!r}: {text!r} was read as {self.by_mark[mark][text]}, as other numbers "
            f"of the table are written (--decimal {other} reads {self.by_mark[other][text]})"
        )


def _examined(column: "pd.Series[Any]") -> _Numerals | None:
    """Return the texts of a column that may hold numbers, or None."""
    if not (dtypes.is_object_dtype(column.dtype) or dtypes.is_string_dtype(column.dtype)):
        return None
    if isinstance(column.dtype, pd.CategoricalDtype):
        return None
    known = column[column.notna()]
    types = {str} if isinstance(column.dtype, pd.StringDtype) else set(map(type, known.to_numpy()))
    if not len(known) or not types or not types <= {str, int, float} or str not in types:
        return None  # numbers that know their texts are of another type
    texts = known.astype(str)
    counts = texts.value_counts(sort=False)
    names = [str(one) for one in counts.index]
    some = names[:_EXAMINED]
    if 2 * max(sum(cleaned(one, mark) is not None for one in some) for mark in MARKS) < len(some):
        plain = pd.to_numeric(pd.Series(some, dtype=object), errors="coerce")
        if 2 * int(plain.notna().sum()) < len(some):
            return None
    as_they_stand = pd.to_numeric(pd.Series(names, dtype=object), errors="coerce").notna()
    plain_names = frozenset(np.array(names, dtype=object)[as_they_stand.to_numpy()])
    by_mark = {mark: {one: _by(one, mark, plain_names) for one in names} for mark in MARKS}
    rows = {
        mark: sum(int(counts[one]) for one in names if by_mark[mark][one] is not None)
        for mark in MARKS
    }
    best = [mark for mark in MARKS if rows[mark] == max(rows.values())]
    same = len(best) == 2 and all(by_mark["."][one] == by_mark[","][one] for one in names)
    mark = best[0] if len(best) == 1 or same else None
    if mark is None and _only_points(names, plain_names):
        mark = "."
    return _Numerals(
        column.astype(object).where(column.isna(), column.astype(str)),
        dict(zip(names, map(int, counts), strict=True)), plain_names, by_mark, mark,
    )  # fmt: skip


def _only_points(names: Sequence[str], plain: frozenset[str]) -> bool:
    """Return whether all numbers of a column are numbers as they stand."""
    return all(one in plain for one in names if cleaned(one, ".") is not None)


def _by(text: str, mark: str, plain: frozenset[str]) -> str | None:
    number = cleaned(text, mark)
    stands = text in plain and (mark == "." or "." not in text)
    return text if stands else number


def _numbers(
    read: _Numerals, name: str, mark: str, *, usual: str | None, keep_words: bool
) -> tuple["pd.Series[Any] | None", list[str]]:
    """Return the column as numbers, or None if it stays text, and notes."""
    values = read.by_mark[mark]
    words = [text for text, value in values.items() if value is None]
    formatted = read.is_formatted(mark)
    numbers = {text: value for text, value in values.items() if value is not None}
    commas = formatted and mark == usual == ","
    if not (formatted or words) or (words and keep_words):
        return None, []
    if len(set(numbers.values())) < FEWEST_NUMBERS and not (commas and not words):
        return None, []
    junk = [word for word in words if not is_placeholder(word)]
    rows, odd = sum(read.counts.values()), sum(read.counts[word] for word in junk)
    if odd > MOST_JUNK * rows or len(junk) > MOST_JUNK_WORDS:
        return None, [_too_many(name, junk, odd, rows)] if 2 * odd <= rows else []
    parsed = pd.to_numeric(pd.Series(numbers, dtype=object))
    texts = read.column.mask(read.column.isin([word for word in words if word not in junk]))
    number = pd.to_numeric(read.column.map(parsed))
    notes = []
    if commas:
        notes.append("numbers have decimal commas, as 3,14")
    elif formatted:
        text = next(one for one in numbers if one not in read.plain or mark == ",")
        notes.append(f"column {name!r} holds numbers such as {text!r}; read as {numbers[text]}")
    if words:
        notes.append(_but_for(name, words, sum(read.counts[word] for word in words)))
    return remember(texts, number), notes


def _but_for(name: str, words: Sequence[str], count: int) -> str:
    verb = "counts" if count == 1 else "count"
    return (
        f"column {name!r} holds numbers but for {count} value{'s' if count > 1 else ''}, "
        f"{quoted(words)}, which {verb} as missing"
    )


def _too_many(name: str, junk: Sequence[str], odd: int, rows: int) -> str:
    return (
        f"column {name!r} stays text: it holds numbers but for {odd} values ({odd / rows:.0%}), "
        f"{few(junk, 6)}; --missing {shlex.quote(junk[0])} counts such a word as missing"
    )
