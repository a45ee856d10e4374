"""Rebuilt rows of a table, back in its original columns, and how many of them are right."""

from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import require, require_positive
from leakgauge.core.types import Column, Schema

NUMBER_TOLERANCE = 0.05
"""A number is right within this many standard deviations of its column; chosen, not a paper's."""


def decode(x: Tensor, schema: Schema) -> pd.DataFrame:
    """The original columns of encoded records, exact or rebuilt.

    A number is un-standardised, a category is that of the largest position. A value is missing
    (``isna``) where the position that marks it is the largest of a category's block, or above 1/2
    beside a number. So is a category without any position above 0, which is how one that the
    encoding does not know is encoded.

    Args:
        x: ``[n, D]``.
        schema: of the encoding.

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
    found: Tensor, truth: Tensor, schema: Schema, *, tolerance: float = NUMBER_TOLERANCE
) -> dict[str, NDArray[np.bool_]]:
    """Whether each value was found ``[n]``, by original column.

    A category must be the same; a number must lie within ``tolerance`` standard deviations of its
    column, as the encoding learnt them; a missing value must be found missing.

    Args:
        found: ``[n, D]``, row by row matched to ``truth``.
        truth: ``[n, D]``.
        schema: of the encoding.
        tolerance: in standard deviations.

    Raises:
        InputError: the shapes differ, or do not fit the schema.
    """
    require_positive(tolerance, "tolerance")
    require(
        found.shape == truth.shape,
        f"rows found are {list(found.shape)}, the true ones {list(truth.shape)}; expected equal",
    )
    pair = decode(found, schema), decode(truth, schema)
    hits = {}
    for column in schema.columns:
        one, two = (frame[column.name] for frame in pair)
        both_missing = one.isna() & two.isna()
        if column.kind == "number":
            same = (one - two).abs() <= tolerance * column.scale
        else:
            same = one == two
        hits[column.name] = (same | both_missing).to_numpy(dtype=bool)
    return hits


def column_accuracy(
    found: Tensor, truth: Tensor, schema: Schema, *, tolerance: float = NUMBER_TOLERANCE
) -> dict[str, float]:
    """The share of values that were found, by original column; right means as in ``column_hits``.

    >>> schema = Schema((Column("age", "number", 0, 1, mean=40, scale=10),), "y", (), {})
    >>> column_accuracy(torch.tensor([[1.0], [0.5]]), torch.tensor([[1.04], [0.4]]), schema)
    {'age': 0.5}
    """
    hits = column_hits(found, truth, schema, tolerance=tolerance)
    return {name: float(hit.mean()) for name, hit in hits.items()}


def fits(x: Tensor, schema: Schema, *, tolerance: float = 1e-3) -> Tensor:
    """Which rows ``[n, D]`` can be encoded records: ``[n]`` bool.

    Categories hold at most one 1 and otherwise zeros; so do the positions that mark a missing
    number, which stands at 0 then. Numbers are not judged. Mixtures of records do not fit where
    the records differ in any category.

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
    found: NDArray[np.object_] = names[block.argmax(axis=1)]
    found[block.max(axis=1) <= 0] = None
    return found


def _require_fit(x: Tensor, schema: Schema) -> None:
    require(bool(schema.columns), "the schema has no encoded columns; expected that of a table")
    wanted = schema.columns[-1].stop
    require(
        x.dim() == 2 and x.shape[1] == wanted,
        f"rows are {list(x.shape)}; expected [n, {wanted}], as the schema says",
    )
