"""Images as records: pixels are the features, a table holds everything else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import nearest, require
from leakgauge.core.types import Dataset, Schema
from leakgauge.data.encoding import encode_label
from leakgauge.data.table import Roles, Table, make_table

_ROW = "leakgauge: row"


def make_picture_table(
    frame: pd.DataFrame, roles: Roles, *, drop_missing: bool = False
) -> tuple[Table, NDArray[np.int64]]:
    """Return the table of the columns beside the images, and the rows ``[n]`` of its images.

    The pixels are the features; columns without a role are left out.

    Raises:
        InputError: a column is missing, or ``make_table`` refuses the table.
    """
    used = [*roles.coded, *([] if roles.group is None else [roles.group])]
    columns = [str(name) for name in frame.columns]
    for name in (*used, *roles.drop):
        require(name in columns, f"no column {name!r} beside the images{nearest(name, columns)}")
    kept = [name for name in frame.columns if str(name) in used]
    numbered = frame[kept].assign(**{_ROW: np.arange(len(frame))})
    plain = replace(roles, drop=())
    table = make_table(numbered, plain, drop_missing=drop_missing)
    return table, table.features[_ROW].to_numpy().astype(np.int64)


def encode_pictures(
    table: Table, pixels: NDArray[np.uint8], rows: NDArray[np.int64], *, fit_on: Tensor
) -> Dataset:
    """Return images as records; channels and a numeric label are standardised over private ones.

    Args:
        table: the table of ``make_picture_table``.
        pixels: all images ``[N, c, h, w]``, uint8.
        rows: the rows ``[n]`` of ``make_picture_table``.
        fit_on: the private records ``[k]``, int64; mean and spread depend on no others.

    Returns:
        Records with ``x [n, c, h, w]``, float32; the schema has no columns.

    Raises:
        InputError: ``fit_on`` is empty.
    """
    require(len(fit_on) > 0, "there are no private images to learn the encoding from")
    x = torch.from_numpy(pixels[rows]).float() / 255
    seen = x[fit_on]
    mean = seen.mean(dim=(0, 2, 3), keepdim=True)
    spread = seen.std(dim=(0, 2, 3), keepdim=True, correction=0)
    return Dataset(
        x=(x - mean) / torch.where(spread > 0, spread, 1.0),
        y=encode_label(table, fit_on, x.dtype),
        secrets=dict(table.secrets),
        users=table.users,
        schema=Schema((), table.label, table.classes, dict(table.values), table.user_names),
    )
