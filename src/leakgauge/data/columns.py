"""The kind of a column (numbers, categories, dates), the codes of its values, numeric labels."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from pandas.api import types as dtypes

from leakgauge.core.checks import InputError, require
from leakgauge.data.written import read_values
from leakgauge.results.statistics import Floats

ColumnKind = Literal["number", "category", "date"]

_INFERRED: dict[ColumnKind, tuple[str, ...]] = {
    "category": ("string", "boolean", "empty"),
    "number": ("integer", "floating", "mixed-integer-float", "decimal"),
    "date": ("datetime64", "datetime", "date", "time", "timedelta64", "timedelta", "period"),
}
"""The kind of a column by the type that pandas infers."""


def kind_of(column: "pd.Series[Any]") -> ColumnKind:
    """Return whether a column holds numbers, categories (text or booleans) or dates.

    Text that looks like a number stays text.

    Raises:
        InputError: the column mixes types or holds something else, such as lists.

    >>> kind_of(pd.Series([1.5, None])), kind_of(pd.Series(["1", "2"]))
    ('number', 'category')
    """
    column = read_values(column)
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype) or dtypes.is_bool_dtype(dtype):
        return "category"
    if dtypes.is_numeric_dtype(dtype) and not dtypes.is_complex_dtype(dtype):
        return "number"
    inferred = dtypes.infer_dtype(column, skipna=True)
    for kind, types in _INFERRED.items():
        if inferred in types:
            return kind
    raise InputError(
        f"column {str(column.name)!r} holds {_contents(column, inferred)}; "
        "expected numbers, text or booleans; convert it or drop it"
    )


def numbers(column: "pd.Series[Any]") -> Floats:
    """Return the values ``[n]`` of a column of numbers, with NaN for missing ones.

    Whole numbers of more than 308 digits are infinite, as they are where a text writes ``1e400``.
    """
    values = read_values(column)
    if values.dtype == np.float64:
        return values.to_numpy()  # the column's own memory
    try:
        return values.to_numpy(dtype="float64", na_value=np.nan)
    except OverflowError:
        most = int(np.finfo(np.float64).max)
        held = [np.inf if one > most else -np.inf if one < -most else one for one in values]
        return np.array(held, dtype=np.float64)


def categories(column: "pd.Series[Any]") -> "pd.Categorical[Any]":
    """Return the column's values as codes, ``-1`` for missing ones, with their sorted names.

    Numbers come first, sorted by size; text follows, sorted by its characters.

    >>> categories(pd.Series([10, 9, 10])).categories.tolist()
    ['9', '10']
    """
    column = read_values(column)
    whole = dtypes.is_integer_dtype(column.dtype)  # exact, where floats would merge large ones
    values = numbers(column) if kind_of(column) == "number" and not whole else column
    codes, uniques = pd.factorize(values)
    distinct = list(uniques)
    order = {name_of(value): None for value in sorted(distinct, key=_rank)}
    position = {name: code for code, name in enumerate(order)}
    # The code -1 of a missing value points at the last entry.
    recode = np.array([*(position[name_of(value)] for value in distinct), -1], dtype=np.int64)
    return pd.Categorical.from_codes(recode[codes], dtype=pd.CategoricalDtype(list(order)))


def quantile_bins(values: Floats, bins: int) -> "pd.Categorical[Any]":
    """Return numbers ``[n]``, cut into at most ``bins`` ranges that hold about equally many.

    Equal values stay together, so a very frequent value leads to fewer ranges.

    >>> quantile_bins(np.array([1.0, 2.0, 3.0, 4.0]), 2).categories.tolist()
    ['<= 2', '> 2']
    """
    steps = np.arange(1, bins) / bins
    # "inverted_cdf" cuts at values that occur: no range can be empty.
    cuts = np.unique(np.quantile(values, steps, method="inverted_cdf"))
    cuts = cuts[cuts < values.max()]
    codes = np.searchsorted(cuts, values, side="left")
    return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(_ranges(cuts)))


def quoted(names: Iterable[object]) -> str:
    """Return names in quotes, as messages show them.

    >>> quoted(["age", 1])
    "'age', '1'"
    """
    return ", ".join(repr(str(name)) for name in names)


def shape_of(frame: pd.DataFrame) -> str:
    """Return the size of a table in words, without its values.

    >>> shape_of(pd.DataFrame({"age": [20, 30]}))
    '2 rows, 1 column'
    """
    rows, columns = frame.shape
    return f"{rows:,} row{'s' * (rows != 1)}, {columns} column{'s' * (columns != 1)}"


def refuse_repeated(names: Iterable[object], where: str) -> None:
    """Refuse two columns with the same name.

    >>> refuse_repeated(["age", "sex", "age"], "the table")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: the table has more than one column called 'age'; rename them
    """
    index = pd.Index([str(name) for name in names], dtype=object)
    repeated = index[index.duplicated()].unique()
    require(
        len(repeated) == 0,
        f"{where} has more than one column called {quoted(repeated)}; rename them",
    )


def refuse_infinite(column: "pd.Series[Any]", what: str) -> None:
    """Refuse a column of numbers, called ``what``, that holds infinite numbers."""
    count = int(np.isinf(numbers(column)).sum())
    require(count == 0, f"{what} is infinite in {count} of {len(column)} rows; correct or drop it")


def _ranges(cuts: Floats) -> list[str]:
    short = [f"{cut:g}" for cut in cuts]
    names = short if len(set(short)) == len(cuts) else [repr(float(cut)) for cut in cuts]
    if not names:
        return ["all"]
    middle = [f"({low}, {high}]" for low, high in pairwise(names)]
    return [f"<= {names[0]}", *middle, f"> {names[-1]}"]


def name_of(value: object) -> str:
    """Return a value as a name; a whole number has no decimals."""
    whole = isinstance(value, float) and value.is_integer()
    return f"{value:.0f}" if whole else str(value)


def _rank(value: Any) -> tuple[int, float, str]:
    if isinstance(value, (int, np.integer)):
        return (0, int(value), "")
    is_number = isinstance(value, (float, np.floating, np.bool_))
    return (0, float(value), "") if is_number else (1, 0.0, str(value))


def _contents(column: "pd.Series[Any]", inferred: str) -> str:
    if not inferred.startswith("mixed"):
        return f"{inferred} values"
    kinds = sorted({type(value).__name__ for value in column.dropna()})
    return f"values of type {kinds[0]}" if len(kinds) == 1 else f"a mix of {' and '.join(kinds)}"


def numeric_label(column: "pd.Series[Any]", notes: list[str]) -> Floats:
    """Return the numbers ``[n]`` of a label, and note that the encoding standardises them.

    Raises:
        InputError: the column does not hold numbers, has only one value, or an infinite one.

    >>> numeric_label(pd.Series([1, 4], name="visits"), [])
    array([1., 4.])
    """
    what = f"label {str(column.name)!r}"
    require(
        kind_of(column) == "number",
        f"{what} is not a column of numbers, which --loss mse needs; use --loss cross_entropy",
    )
    refuse_infinite(column, what)
    values = numbers(column)
    require(len(np.unique(values)) > 1, f"{what} has one value only, {values[0]:g}")
    notes.append(f"{what} stays a number, standardised as the numeric features are")
    return values
