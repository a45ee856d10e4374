"""Small repairs of a table read from a file, each with a note."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import pandas as pd
from pandas.api import types as dtypes

from leakgauge.data.columns import quoted

MOST_JUNK = 0.05
"""Largest share of other values in a column of numbers."""

MOST_JUNK_WORDS = 10
"""Largest number of different other values in a column of numbers."""

FEWEST_NUMBERS = 11
"""Smallest number of different numbers; with fewer, the column may hold categories."""


def numbered(names: Sequence[Hashable]) -> tuple[list[str], list[str]]:
    """Return unique names, and a note for each repeated one.

    >>> numbered(["age", "sex", "age"])
    (['age', 'sex', 'age.1'], ["2 columns are called 'age'; read as 'age', 'age.1'"])
    """
    texts = [str(name) for name in names]
    taken, counts = set(texts), Counter(texts)
    new: list[str] = []
    seen: dict[str, list[str]] = {}
    for text in texts:
        name = text
        if text in seen:
            number = len(seen[text])
            while (name := f"{text}.{number}") in taken:
                number += 1
            taken.add(name)
        seen.setdefault(text, []).append(name)
        new.append(name)
    notes = [
        f"{counts[text]} columns are called {text!r}; read as {quoted(names)}"
        for text, names in seen.items()
        if len(names) > 1
    ]
    return new, notes


def numbers_kept(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with a few junk values in columns of numbers set missing, and notes.

    A column counts as numeric if it has at least ``FEWEST_NUMBERS`` different numbers and at most
    a share of ``MOST_JUNK`` other values.

    >>> frame = pd.DataFrame({"limit": [str(n) for n in range(30)] + ["n/a?"]})
    >>> kept, notes = numbers_kept(frame)
    >>> int(kept["limit"].isna().sum()), notes
    (1, ["column 'limit' holds numbers but for 1 value, 'n/a?', which counts as missing"])
    """
    kept, notes = {}, []
    for name, column in frame.items():
        numeric = None if dtypes.is_numeric_dtype(column.dtype) else _without_junk(column)
        if numeric is None:
            continue
        junk = column[column.notna() & numeric.isna()]
        words = quoted(junk.astype(str).unique())
        count, verb = len(junk), "counts" if len(junk) == 1 else "count"
        notes.append(
            f"column {str(name)!r} holds numbers but for {count} value{'s' if count > 1 else ''}, "
            f"{words}, which {verb} as missing"
        )
        kept[name] = numeric
    return frame.assign(**{str(name): column for name, column in kept.items()}), notes


def alike(column: "pd.Series[Any]") -> list[str]:
    """Return the values of a column of text that differ from another only in case or blanks.

    >>> alike(pd.Series(["White", "white ", "Black", None]))
    ['White', 'white ']
    """
    names = [value for value in column.dropna().unique() if isinstance(value, str)]
    plain = [" ".join(name.split()).casefold() for name in names]
    counts = Counter(plain)
    return [name for name, one in zip(names, plain, strict=True) if counts[one] > 1]


def _without_junk(column: "pd.Series[Any]") -> "pd.Series[Any] | None":
    """Return the column as numbers, or None if it holds too many other values."""
    if not dtypes.is_object_dtype(column.dtype) and not dtypes.is_string_dtype(column.dtype):
        return None
    given = column.notna()
    if any(isinstance(value, bool) for value in column[given]):
        return None
    numeric = pd.to_numeric(column, errors="coerce")
    junk = column[given & numeric.isna()]
    if junk.empty or len(junk) > MOST_JUNK * int(given.sum()):
        return None
    if junk.astype(str).nunique() > MOST_JUNK_WORDS or numeric.nunique() < FEWEST_NUMBERS:
        return None
    return numeric
