"""Numbers that remember the text they were read from, because a name is a text and not a number."""

import re
from typing import Any

import numpy as np
import pandas as pd

_PADDED = re.compile(r"\s*[-+]?0\d")
_ZERO = re.compile(r"-?0(\.0*)?")


SOME = 1000
"""Rows that show what most columns hold, without a look at the others."""


class Written(str):
    """A text that was read as a number.

    It is equal to another by its text, so that ``1.1`` and ``1.10`` are two users, and one number.

    Attributes:
        value: the number (NaN for a word among numbers), or a truth value.
    """

    value: Any

    def __new__(cls, text: str, value: Any = np.nan) -> "Written":
        """Return the text with its number."""
        one = super().__new__(cls, text)
        one.value = value
        return one


def remember(texts: "pd.Series[Any]", values: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return ``values``, or texts that know their values where numbers alone would lose a text.

    A number loses its text where another text is the same number, where it has leading zeros, and
    where the text is a word. Among numbers with fractions, ``-0.0`` is no other text than ``0.0``:
    rounded measurements have both.

    Args:
        texts: the texts of a column; missing ones are missing values.
        values: the numbers read from them, in the same rows.

    >>> remember(pd.Series(["1.1", "1.10"]), pd.Series([1.1, 1.1])).tolist()
    ['1.1', '1.10']
    >>> remember(pd.Series(["1.1", "1.2"]), pd.Series([1.1, 1.2])).tolist()
    [1.1, 1.2]
    """
    codes, names = pd.factorize(texts.astype(object).to_numpy())
    known = np.flatnonzero(codes >= 0)
    read = values.iloc[known[np.unique(codes[known], return_index=True)[1]]]
    signed = 0
    if has_fractions(read):
        zeros = {name for name in names if _ZERO.fullmatch(name)}
        signed = sum(name[0] == "-" and name[1:] in zeros for name in zeros)
    one_to_one = bool(read.notna().all()) and read.nunique() == len(names) - signed
    if one_to_one and not any(_PADDED.match(name) for name in names):
        return values
    made = [Written(name, value) for name, value in zip(names, read.tolist(), strict=True)]
    kept = np.array([*made, np.nan], dtype=object)[codes]
    return pd.Series(kept, index=texts.index, name=texts.name, dtype=object)


def has_fractions(column: "pd.Series[Any]") -> bool:
    """Return whether a column of floats holds a number that is not whole.

    >>> has_fractions(pd.Series([1.0, 1.5])), has_fractions(pd.Series([1.0, np.nan, np.inf]))
    (True, False)
    """
    if column.dtype != np.float64:
        return False
    values = column.to_numpy()
    for some in (values[:SOME], values):
        if bool((np.mod(some[np.isfinite(some)], 1) != 0).any()):
            return True
    return False


def is_written(column: "pd.Series[Any]") -> bool:
    """Return whether all known values of a column are numbers that remember their texts."""
    if column.dtype != object:
        return False
    known = column.to_numpy()[column.notna().to_numpy()]
    return len(known) > 0 and type(known[0]) is Written and set(map(type, known)) == {Written}


def distinct(column: "pd.Series[Any]") -> list[Any]:
    """Return the different values of a column in their order; all of them if one is a list."""
    try:
        return list(column.unique())
    except TypeError:  # lists and arrays cannot be hashed
        return list(column)


def read_values(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Return the numbers of a column of ``Written`` texts, and any other column unchanged.

    >>> read_values(remember(pd.Series(["1.1", "1.10"]), pd.Series([1.1, 1.1]))).tolist()
    [1.1, 1.1]
    """
    if not is_written(column):
        return column
    codes, names = pd.factorize(column.to_numpy(dtype=object))
    values = np.array([*(name.value for name in names), np.nan], dtype=object)[codes]
    return pd.Series(values, index=column.index, name=column.name, dtype=object).infer_objects()


def merged_texts(column: "pd.Series[Any]") -> tuple[int, int, tuple[str, ...]]:
    """Return the numbers of different texts and different numbers, and two texts of one number.

    Words among the numbers do not count. Another column gives zeros.
    """
    if not is_written(column):
        return 0, 0, ()
    by_value: dict[Any, list[str]] = {}
    for name in pd.unique(column[column.notna()].to_numpy(dtype=object)):
        if name.value == name.value:
            by_value.setdefault(name.value, []).append(str(name))
    alike = next((texts for texts in by_value.values() if len(texts) > 1), [])
    return sum(map(len, by_value.values())), len(by_value), tuple(alike[:2])
