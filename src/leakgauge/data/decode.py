"""Decode rebuilt rows to the original columns of a table, and count the right values."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import require, require_positive
from leakgauge.core.types import Column, Schema
from leakgauge.results.statistics import Bools

NUMBER_TOLERANCE = 0.05
"""Tolerance of a right number, in standard deviations of its column; our choice."""


def decode(x: Tensor, schema: Schema) -> pd.DataFrame:
    """Return the original columns of encoded records, exact or rebuilt.

    Numbers lose their standardisation; a category is that of the largest position. A value is
    missing (``isna``) if the missing mark is the largest position of a category, or above 1/2 for a
    number. A category without any position above 0 is missing too: the encoding gives zeros for
    unknown categories.

    Args:
        x: encoded records ``[n, D]``.
        schema: the schema of the encoding.

    Raises:
        InputError: ``x`` does not fit the schema.

    >>> flag = Column("sex", "category", 1, 3, ("f", "m"))
    >>> schema = Schema((Column("age", "number", 0, 1, mean=40, scale=10), flag), "y", (), {})
    >>> decode(torch.tensor([[-1.0, 0.2, 0.7]]), schema).to_dict("records")
    [{'age': 30.0, 'sex': 'm'}]
    """
    _require_fit(x, schema)
    values = x.detach().cpu().double().numpy()
    return pd.DataFrame({column.name: _decoded(values, column) for column in schema.columns})


def column_hits(
    rebuilt: Tensor, truth: Tensor, schema: Schema, *, tolerance: float = NUMBER_TOLERANCE
) -> dict[str, Bools]:
    """Return whether each rebuilt value is right, ``[n]`` by original column.

    A category must be the same; a number must lie within ``tolerance`` standard deviations (those
    of the encoding); a missing value must be missing in both.

    Args:
        rebuilt: encoded records ``[n, D]``; row i belongs to row i of ``truth``.
        truth: encoded records ``[n, D]``.
        schema: the schema of the encoding.
        tolerance: in standard deviations.

    Raises:
        InputError: the shapes differ, or do not fit the schema.
    """
    require_positive(tolerance, "tolerance")
    require(
        rebuilt.shape == truth.shape,
        f"rebuilt rows are {list(rebuilt.shape)}, the true ones {list(truth.shape)}; "
        "expected equal",
    )
    pair = decode(rebuilt, schema), decode(truth, schema)
    hits = {}
    for column in schema.columns:
        ours, true = (frame[column.name] for frame in pair)
        both_missing = ours.isna() & true.isna()
        if column.kind == "number":
            same = (ours - true).abs() <= tolerance * column.scale
        else:
            same = ours == true
        hits[column.name] = (same | both_missing).to_numpy(dtype=bool)
    return hits


def number_text(value: float, column: Column, *, rebuilt: bool = False) -> str:
    """Return a decoded number as a reader writes it, in the six digits that its feature supports.

    A feature is the distance from the mean, in float32: the last digits of a sum with the mean are
    rounding, such as 0.0000000723 for a 0. A rebuilt feature has an error of that size even near 0.

    Args:
        value: number in the units of the column.
        column: column of numbers.
        rebuilt: whether an attack gave the value.

    >>> age = Column("age", "number", 0, 1, mean=40, scale=10)
    >>> number_text(7.23e-8, age), number_text(38.99999998, age), number_text(0.5, age)
    ('0', '39', '0.5')
    >>> number_text(1e-313, Column("change", "number", 0, 1, mean=1e-313, scale=1))
    '0'
    """
    size = max(abs(value - column.mean), column.scale if rebuilt else 0.0)
    if not 0 < size < math.inf:
        rounding = abs(value) <= np.finfo(np.float64).eps * column.scale  # of a mean of 0
        return np.format_float_positional(0.0 if rounding else value, trim="-")
    # Adding 0 turns -0 into 0.
    rounded = round(float(value), 5 - math.floor(math.log10(size))) + 0.0
    return np.format_float_positional(rounded, trim="-")


def fits(x: Tensor, schema: Schema, *, tolerance: float = 1e-3) -> Tensor:
    """Return whether each row of ``x [n, D]`` can be an encoded record, bool ``[n]``.

    The positions of a category hold at most one 1, and zeros otherwise; so does the mark of a
    missing number, which is then 0 itself. Other numbers are not checked. A mixture of records that
    differ in any category does not fit.

    Raises:
        InputError: ``x`` does not fit the schema.

    >>> schema = Schema((Column("sex", "category", 0, 2, ("f", "m")),), "y", (), {})
    >>> fits(torch.tensor([[0.0, 1.0], [0.4, 0.6], [1.0, 1.0]]), schema).tolist()
    [True, False, False]
    """
    _require_fit(x, schema)
    right = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for column in schema.columns:
        block = x[:, column.start : column.stop]
        flags = block if column.kind == "category" else block[:, 1:]
        right &= (torch.minimum(flags.abs(), (flags - 1).abs()) <= tolerance).all(dim=1)
        right &= (flags > 0.5).sum(dim=1) <= 1
        if column.kind == "number" and column.missing:
            right &= (block[:, 0].abs() <= tolerance) | (block[:, 1] < 0.5)
    return right


def _decoded(values: NDArray[np.float64], column: Column) -> NDArray[Any]:
    block = values[:, column.start : column.stop]
    if column.kind == "number":
        number = block[:, 0] * column.scale + column.mean
        return np.where(block[:, 1] > 0.5, np.nan, number) if column.missing else number
    names = np.array([*column.categories, *([None] if column.missing else [])], dtype=object)
    values_of_rows: NDArray[np.object_] = names[block.argmax(axis=1)]
    values_of_rows[block.max(axis=1) <= 0] = None
    return values_of_rows


def _require_fit(x: Tensor, schema: Schema) -> None:
    require(bool(schema.columns), "the schema has no encoded columns; expected that of a table")
    width = schema.columns[-1].stop
    require(
        x.dim() == 2 and x.shape[1] == width,
        f"rows are {list(x.shape)}; expected [n, {width}], as the schema says",
    )
