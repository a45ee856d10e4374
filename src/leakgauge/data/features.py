"""Turn the columns of a table into features: which stay, which do not, and why."""

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from leakgauge.core.checks import InputError, require
from leakgauge.data.columns import categories, kind_of, numbers, refuse_infinite
from leakgauge.data.written import SOME, merged_texts, read_values
from leakgauge.results.statistics import Floats

MOST_CATEGORIES = 200

TIME = r"(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s*(?:Z|[+-]\d{2}:?\d{2}|[AaPp][Mm])?)?"

DATE = re.compile(
    r"(?:(?P<year>\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{1,2})[-/.](\d{1,2})[-/.](?:\d{4}|\d{2}))"
    + TIME
)
"""A date in digits: the year first, or day and month in either order."""

MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?"

WORDED_DATE = re.compile(
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?\s+)?"
    rf"(?:{DAY}[-/.\s]+{MONTH}[-/.,\s]+(?:\d{{4}}|\d{{2}})"
    rf"|{MONTH}[-/.\s]+(?:{DAY}[-,\s]+)?\d{{4}}"
    rf"|\d{{4}}[-/.\s]+{MONTH}(?:[-/.\s]+{DAY})?){TIME}",
    re.IGNORECASE,
)
"""A date with an English month: ``4 Aug 2020``, ``Aug 4, 2020``, ``Aug 2020``, ``2020-Aug-04``."""

OTHER = "other"
"""Name of the category for all values that are merged."""


def features_of(
    frame: pd.DataFrame, *, secrets: Collection[str], roles: Collection[str], notes: list[str]
) -> pd.DataFrame:
    """Return the features and the secrets as float64 or categorical columns.

    Args:
        frame: the whole table.
        secrets: columns that stay whatever they hold.
        roles: columns that are neither feature nor secret.
        notes: list to which findings are added.

    Raises:
        InputError: no feature is left, or a number is infinite.
    """
    kept: dict[str, Any] = {}
    for name in frame.columns.drop(list(roles)):
        texts = frame[name]
        column = read_values(texts)  # once: each reading takes time for all rows
        reason = None if name in secrets else _unusable(column)
        if reason:
            notes.append(f"column {name!r} was left out: {reason}")
        elif kind_of(column) == "number":
            refuse_infinite(column, f"column {name!r}")
            kept[name] = numbers(column)
            name_merged(texts, notes)
        else:
            codes = categories(column)
            kept[name] = codes if name in secrets else _with_other(codes, str(name), notes)
    require(
        len(kept) > len(secrets),
        "no feature columns are left besides the label, the secrets and the group"
        + (f"; {'; '.join(notes)}" if notes else ""),
    )
    return pd.DataFrame(kept, copy=False)


def name_merged(column: "pd.Series[Any]", notes: list[str]) -> None:
    """Add a note to ``notes`` if different texts of a column count as one number."""
    texts, values, alike = merged_texts(column)
    if texts > values:
        notes.append(
            f"column {str(column.name)!r}: {texts} different texts are {values} numbers, as "
            f"{' and '.join(map(repr, alike))} are one; as --group each text is a user"
        )


def numbers_rows(column: "pd.Series[Any]") -> bool:
    """Return whether a column without a name, or R's ``rownames``, numbers the rows.

    >>> numbers_rows(pd.Series([1, 2, 3], name="Unnamed: 0"))
    True
    """
    unnamed = str(column.name).startswith("Unnamed:") or str(column.name) == "rownames"
    if not unnamed or not dtypes.is_numeric_dtype(column.dtype):
        return False
    values = numbers(column)
    whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    return whole and len(np.unique(values)) == len(values)


def _unusable(column: "pd.Series[Any]") -> str | None:
    """Return why a column cannot be a feature, or None if it can."""
    reason = unlike_any(column)
    if reason:
        return reason
    kind = kind_of(column)
    if kind == "date":
        return "it holds dates"
    if numbers_rows(column):
        return "it has no name and numbers the rows"
    if kind == "number":
        return "it has one value" if _is_constant(numbers(column)) else None
    if writes_dates(column):
        return "it holds dates"
    distinct = int(column.nunique())
    if distinct + int(column.isna().any()) == 1:
        return "it has one value"
    if 2 * distinct > len(column):
        return f"it has {distinct} different values in {len(column)} rows"
    return None


def writes_dates(column: "pd.Series[Any]") -> bool:
    """Return whether each text of a column is a date, with or without a time.

    Tables of text write dates in digits or with an English month; other formats have a type for
    them.

    >>> writes_dates(pd.Series(["2020-08-04", "2020-08-11 10:30"]))
    True
    >>> writes_dates(pd.Series(["4 Aug 2020", "August 11, 2020"]))
    True
    >>> writes_dates(pd.Series(["2020-08-04", "1.10.300"]))
    False
    """
    known = column.dropna()
    some = known.iloc[:SOME]
    return len(known) > 0 and all(
        all(isinstance(one, str) and _is_date(one) for one in part.unique())
        for part in (some, known)
    )


def _is_date(text: str) -> bool:
    found = DATE.fullmatch(text.strip())
    if found is None:
        return WORDED_DATE.fullmatch(text.strip()) is not None
    year, *others = (int(one) for one in found.groups() if one)
    first, second = others if found["year"] else (year, others[0])
    return 1 <= min(first, second) <= 12 and max(first, second) <= 31


def _is_constant(values: Floats) -> bool:
    some = values[:SOME]
    return len(pd.unique(some)) == 1 and len(pd.unique(values)) == 1


def unlike_any(column: "pd.Series[Any]") -> str | None:
    """Return what a column holds instead of numbers, text, booleans or dates; None if it does not.

    >>> unlike_any(pd.Series([{"a": 1}, None], name="tags"))
    'it holds values of type dict'
    """
    try:
        kind_of(column)
    except InputError as error:
        known = column.dropna()
        if known.map(lambda one: isinstance(one, str | int | float)).all():
            raise  # a mix of numbers and text can be mended
        held = str(error).split(" holds ", 1)[1].split("; expected", 1)[0]
        return f"it holds {held}"
    return None


def _with_other(codes: "pd.Categorical[Any]", name: str, notes: list[str]) -> "pd.Categorical[Any]":
    """Return the codes with all but the most frequent values merged into one, if there are many."""
    count = len(codes.categories)
    if count <= MOST_CATEGORIES:
        return codes
    known = codes.codes >= 0
    rows = np.bincount(codes.codes[known], minlength=count)
    order = np.argsort(-rows, kind="stable")
    kept = np.zeros(count, dtype=bool)
    kept[order[: MOST_CATEGORIES - 1]] = True
    merged, gone = merge(codes, kept)
    share = rows[~kept].sum() / max(1, known.sum())
    notes.append(
        f"column {name!r} has {count} different values: the {MOST_CATEGORIES - 1} most frequent "
        f"stay, and {len(gone)} others ({share:.0%} of the rows) became {merged.categories[-1]!r}"
    )
    return merged


def merge(
    codes: "pd.Categorical[Any]", kept: "np.ndarray[Any, Any]"
) -> tuple["pd.Categorical[Any]", list[str]]:
    """Return codes with the values that are not ``kept [k]`` merged into the last, and their names.

    Missing values stay missing.
    """
    names = codes.categories.astype(str)
    stay, gone = names[kept].tolist(), names[~kept].tolist()
    other = OTHER if OTHER not in stay else f"{OTHER} ({len(gone)} values)"
    place = np.append(np.where(kept, np.cumsum(kept) - 1, len(stay)), -1)
    merged: pd.Categorical[Any] = pd.Categorical.from_codes(
        place[codes.codes], dtype=pd.CategoricalDtype(pd.Index([*stay, other], dtype=object))
    )
    return merged, gone
