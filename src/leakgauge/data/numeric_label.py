"""A label that stays a number, for a loss of numbers."""

from typing import Any

import numpy as np
import pandas as pd

from leakgauge.core.checks import require
from leakgauge.data.columns import Floats, kind_of, numbers, refuse_infinite


def numeric_label(column: "pd.Series[Any]", notes: list[str]) -> Floats:
    """Return the numbers ``[n]`` of a label; a note says that the encoding standardises them.

    Raises:
        InputError: the column holds no numbers, one value only, or an infinite one.

    >>> numeric_label(pd.Series([1, 4], name="visits"), [])
    array([1., 4.])
    """
    what = f"label {str(column.name)!r}"
    require(
        kind_of(column) == "number",
        f"{what} is no column of numbers, which --loss mse learns; take --loss cross_entropy",
    )
    refuse_infinite(column, what)
    values = numbers(column)
    require(len(np.unique(values)) > 1, f"{what} has one value only, {values[0]:g}")
    notes.append(f"{what} stays a number, standardised as the numeric features are")
    return values
