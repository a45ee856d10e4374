"""Parse a text with pandas, also a long one, without several copies of it in memory."""

import io
import warnings
from typing import Any

import numpy as np
import pandas as pd

LONG = 2**26
"""Bytes of a text from which its rows are parsed some at a time."""

LARGEST_EXACT = 2.0**53
"""Smallest whole number from which floats leave some out."""


def parsed(content: bytes, separator: str, **how: Any) -> pd.DataFrame:
    """Return what pandas reads of a text in UTF-8; ``how`` are arguments of ``read_csv``."""
    frame: pd.DataFrame = pd.read_csv(io.BytesIO(content), sep=separator, encoding="utf-8", **how)
    return frame


def parsed_whole(content: bytes, separator: str, **how: Any) -> pd.DataFrame:
    """Return a table in which each column has the type of all its rows together.

    pandas then holds every field of the text at once, some ten times the numbers. A long text is
    parsed some rows at a time, and only columns whose type may depend on that are parsed again.
    """
    if len(content) <= LONG:
        return parsed(content, separator, index_col=False, low_memory=False, **how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)
        frame = parsed(content, separator, index_col=False, low_memory=True, **how)
    doubtful = [at for at in range(frame.shape[1]) if _is_doubtful(frame.iloc[:, at])]
    if not doubtful:
        return frame
    again = parsed(
        content, separator, index_col=False, low_memory=False, usecols=doubtful, **how
    ).set_axis(frame.columns[doubtful], axis=1)
    names = list(frame.columns)
    return pd.concat([frame.drop(columns=again.columns), again], axis=1)[names]


def _is_doubtful(column: "pd.Series[Any]") -> bool:
    """Return whether parts of a column may have been read as several types."""
    if column.dtype == object:
        return pd.api.types.infer_dtype(column, skipna=True) != "boolean"
    if column.dtype != np.float64:
        return False
    largest = column.abs().max()
    return bool(largest >= LARGEST_EXACT)
