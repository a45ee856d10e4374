"""Encode checked tables and images as tensors for training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Column, Dataset, Schema
from leakgauge.data.replaced import with_columns
from leakgauge.data.table import Roles, Table, make_table
from leakgauge.results.statistics import Floats, Ints

_TOO_LARGE = "column {!r} holds numbers too large to be standardised"


def encode(
    table: Table,
    *,
    fit_on: Tensor,
    keep: Sequence[str] = (),
    dtype: torch.dtype = torch.float32,
    only: Tensor | None = None,
    scale_binary: bool = False,
) -> Dataset:
    """Return records, encoded with the means, scales and categories of some of them.

    Numbers are standardised (a column that is constant in ``fit_on`` is only centred), but a column
    that holds only 0 and 1 in ``fit_on`` stays as it is. A missing number becomes 0, the mean if
    the column is standardised, and the position after it marks it. Categories are one-hot; a
    missing one has its own position, and one that ``fit_on`` does not hold becomes zeros. Secrets
    are not features unless ``keep`` names them. Positions follow the table's columns. A numeric
    label is treated as a number among the features.

    Args:
        table: the checked table of n records.
        fit_on: rows of the private training part ``[k]``, int64; the encoding depends on no others.
        keep: secrets that stay among the features.
        dtype: type of ``x`` and of a numeric label.
        only: rows to encode ``[k]``, int64, in the order of the result; None for all.
        scale_binary: whether to standardise columns of 0 and 1, too. A rare 1 then lies many
            standard deviations from 0.

    Returns:
        The n records, or k of them, with a schema.

    Raises:
        InputError: ``fit_on`` is empty, ``keep`` names a column that is not a secret, or
            the numbers of a column are too large to be standardised.

    >>> from leakgauge.data.table import Roles, make_table
    >>> frame = pd.DataFrame({"age": [20, 30, 40, 50], "sex": list("fmfm"), "ill": [0, 1, 1, 0]})
    >>> table = make_table(frame, Roles(label="ill", secrets=("sex",)))
    >>> encode(table, fit_on=torch.tensor([0, 1])).x[:, 0].tolist()
    [-1.0, 1.0, 3.0, 5.0]
    """
    require(len(fit_on) > 0, "the encoding has no private records to learn from")
    for name in keep:
        require_known(name, table.secrets, f"cannot keep {name!r}, no secret")
    names = [str(name) for name in table.features if name in keep or name not in table.secrets]
    rows = fit_on.cpu().numpy()
    seen = table.features[names].iloc[rows]  # of all columns at once: a table may have thousands
    columns: list[Column] = []
    for name in names:
        start = columns[-1].stop if columns else 0
        columns.append(_learn(seen[name], name, start, scale_binary=scale_binary))
    frame = table.features if only is None else table.features[names].iloc[only.cpu().numpy()]
    x = torch.zeros(len(table) if only is None else len(only), columns[-1].stop, dtype=dtype)
    for column in columns:
        x[:, column.start : column.stop] = _encoded(frame[column.name], column, dtype)
    columns = [_with_typical(column, table, rows, dtype) for column in columns]
    return _records(table, x, fit_on, tuple(columns), only, scale_binary=scale_binary)


def _records(
    table: Table,
    x: Tensor,
    fit_on: Tensor,
    columns: tuple[Column, ...],
    only: Tensor | None = None,
    *,
    scale_binary: bool = False,
) -> Dataset:
    schema = Schema(columns, table.label, table.classes, dict(table.values), table.user_names)
    y = encode_label(table, fit_on, x.dtype, scale_binary=scale_binary)
    secrets, users = dict(table.secrets), table.users
    if only is not None:
        y, secrets = y[only], {name: codes[only] for name, codes in secrets.items()}
        users = None if users is None else users[only]
    return Dataset(x, y, secrets, users, schema)


def encode_label(
    table: Table, fit_on: Tensor, dtype: torch.dtype, *, scale_binary: bool = False
) -> Tensor:
    """Return codes ``[n]`` unchanged, or numbers ``[n]`` standardised over ``fit_on [k]``.

    Numbers that are only 0 and 1 there stay as they are, as in ``encode``.

    Raises:
        InputError: numbers are too large to be standardised.
    """
    if not table.y.is_floating_point():
        return table.y
    values = pd.Series(table.y.numpy(), name=table.label)
    seen = values.iloc[fit_on.cpu().numpy()]
    column = _learn(seen, table.label, 0, scale_binary=scale_binary)
    return _encoded(values, column, dtype)[:, 0]


def outputs_for(table: Table) -> int:
    """Return the number of outputs of a network for the label: one per class, or 1 for numbers."""
    return len(table.classes) or 1


def _with_typical(column: Column, table: Table, fit_on: Ints, dtype: torch.dtype) -> Column:
    """Return a column of numbers with the median of each range into which the secret was cut.

    Rows of the private part count only if the range has no other rows.
    """
    names = table.values.get(column.name, ())
    if column.kind != "number" or not names or all(map(_is_number, names)):
        return column
    codes = table.secrets[column.name]
    encoded = _encoded(table.features[column.name], column, dtype)[:, 0]
    other = torch.ones(len(table), dtype=torch.bool)
    other[torch.from_numpy(fit_on)] = False
    inside = [codes == code for code in range(len(names))]
    ranges = [(rows & other) if bool((rows & other).any()) else rows for rows in inside]
    return replace(column, typical=tuple(float(encoded[rows].median()) for rows in ranges))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _learn(seen: "pd.Series[Any]", name: str, start: int, *, scale_binary: bool) -> Column:
    """Return one column's encoding, learnt from the rows ``seen``."""
    missing = bool(seen.isna().any())
    if isinstance(seen.dtype, pd.CategoricalDtype):
        present = tuple(map(str, seen.cat.remove_unused_categories().cat.categories))
        return Column(name, "category", start, start + len(present) + missing, present, missing)
    values = seen.dropna().to_numpy(dtype=np.float64)
    binary = not scale_binary and bool(np.isin(values, (0.0, 1.0)).all())
    mean, scale = (0.0, 1.0) if binary else _mean_scale(values)
    require(np.isfinite(mean) and np.isfinite(scale), _TOO_LARGE.format(name))
    return Column(name, "number", start, start + 1 + missing, (), missing, mean, scale)


def _mean_scale(values: Floats) -> tuple[float, float]:
    if len(values) == 0:
        return 0.0, 1.0
    if values.min() == values.max():
        return float(values[0]), 1.0
    # The caller refuses overflow; it knows the column's name.
    with np.errstate(over="ignore", invalid="ignore"):
        scale = float(values.std())
        # Numbers so close that their squares vanish have no usable spread.
        return float(values.mean()), scale if scale > 0 else 1.0


def _encoded(values: "pd.Series[Any]", column: Column, dtype: torch.dtype) -> Tensor:
    """Return one column, encoded ``[n, stop - start]``."""
    block = np.zeros((len(values), column.stop - column.start))
    if column.kind == "category":
        position = {name: at for at, name in enumerate(column.categories)}
        # The code -1 of a missing value points at the last entry.
        at = np.array([*(position.get(str(name), -1) for name in values.cat.categories), -1])
        where = at[values.cat.codes.to_numpy()]
        known = np.flatnonzero(where >= 0)
        block[known, where[known]] = 1.0
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (values.to_numpy(dtype=np.float64) - column.mean) / column.scale
        block[:, 0] = np.where(values.isna(), 0.0, scaled)
    if column.missing:
        block[:, -1] = values.isna()
    encoded = torch.from_numpy(block).to(dtype)
    require(bool(encoded.isfinite().all()), _TOO_LARGE.format(column.name))
    return encoded


_ROW = "leakgauge: row"


def make_picture_table(
    frame: pd.DataFrame, roles: Roles, *, drop_missing: bool = False
) -> tuple[Table, Ints]:
    """Return the table of the images' columns, and the rows ``[n]`` of its images.

    The pixels are the features; columns without a role are left out.

    Raises:
        InputError: a column is missing, or ``make_table`` refuses the table.
    """
    used = [*roles.coded, *([] if roles.group is None else [roles.group])]
    columns = [str(name) for name in frame.columns]
    for name in (*used, *roles.drop):
        require_known(name, columns, f"the images have no column {name!r}")
    kept = [name for name in frame.columns if str(name) in used]
    numbered = with_columns(frame[kept], {_ROW: np.arange(len(frame))})
    table = make_table(numbered, replace(roles, drop=()), drop_missing=drop_missing)
    return table, table.features[_ROW].to_numpy().astype(np.int64)


def encode_pictures(
    table: Table,
    pixels: NDArray[np.uint8],
    rows: Ints,
    *,
    fit_on: Tensor,
    scale_binary: bool = False,
) -> Dataset:
    """Return images as records, with channels and numeric labels standardised over private ones.

    Args:
        table: the table of ``make_picture_table``.
        pixels: all images ``[N, c, h, w]``, uint8.
        rows: the rows ``[n]`` of ``make_picture_table``.
        fit_on: the private records ``[k]``, int64; mean and spread depend on no others.
        scale_binary: whether to standardise a numeric label of 0 and 1, too.

    Returns:
        Records with ``x [n, c, h, w]``, float32; the schema has no columns.

    Raises:
        InputError: ``fit_on`` is empty.
    """
    require(len(fit_on) > 0, "the encoding has no private images to learn from")
    x = torch.from_numpy(pixels[rows]).float() / 255
    seen = x[fit_on]
    mean = seen.mean(dim=(0, 2, 3), keepdim=True)
    spread = seen.std(dim=(0, 2, 3), keepdim=True, correction=0)
    scaled = (x - mean) / torch.where(spread > 0, spread, 1.0)
    return _records(table, scaled, fit_on, (), scale_binary=scale_binary)
