"""A table with other columns."""

from collections.abc import Mapping
from typing import Any

import pandas as pd


def with_columns(frame: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with some columns replaced or added; the given one stays as it is.

    ``DataFrame.assign`` takes names as arguments, and so fails for a column ``self``.

    >>> frame = pd.DataFrame({"self": ["a", "b"], "n": [1, 2]})
    >>> with_columns(frame, {"self": ["c", "d"]})["self"].tolist(), frame["self"].tolist()
    (['c', 'd'], ['a', 'b'])
    """
    if not columns:
        return frame
    changed = frame.copy(deep=False)
    for name, column in columns.items():
        changed[name] = column
    return changed
