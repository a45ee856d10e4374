"""Records from arrays: images, signals, embeddings, features computed elsewhere."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from leakgauge.core.checks import InputError, nearest, require, require_known
from leakgauge.core.types import Dataset, Schema
from leakgauge.data.columns import categories, kind_of
from leakgauge.data.read import existing, read_npz, read_table

Array = npt.NDArray[Any]


def from_arrays(
    x: Array | Tensor,
    y: Array | Tensor,
    secrets: Mapping[str, Array | Tensor],
    *,
    users: Array | Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    """Return records from NumPy arrays or tensors.

    uint8 images ``[n, h, w]`` or ``[n, h, w, c]`` become ``[n, c, h, w]`` in 0..1 (``[n, c, h, w]``
    keeps that order). Other numbers stay as they are; nothing is standardised.

    Args:
        x: features ``[n, ...]``.
        y: labels: for classes, whole-number codes from 0 ``[n]``; else numbers ``[n]`` or
            ``[n, k]``, which become floating, except for whole numbers ``[n, k]``.
        secrets: each secret's codes ``[n]``, whole numbers from 0.
        users: the user of each record ``[n]``, any whole numbers.
        dtype: type of the result's ``x``; a floating type also applies to floating labels.

    Raises:
        InputError: shapes or lengths differ, a feature or label is NaN or infinite, codes are not
            whole numbers from 0, or a label or secret has only one value.

    >>> data = from_arrays(np.eye(2), np.array([0, 1]), {"sex": np.array([1, 0])})
    >>> data.x.shape, data.y.tolist()
    (torch.Size([2, 2]), [0, 1])
    """
    features = _features(_array(x), dtype)
    n = len(features)
    codes = {name: _codes(_array(own), f"secret {name!r}", n) for name, own in secrets.items()}
    for name, own in codes.items():
        absent = (torch.bincount(own) == 0).nonzero().flatten().tolist()
        first = absent[0] if absent else 0
        require(
            not absent,
            f"secret {name!r} has no record with code {first}; number its values 0, 1, ...",
        )
    return Dataset(
        x=features,
        y=_labels(_array(y), n, dtype),
        secrets=codes,
        users=None if users is None else _users(_array(users), n),
    )


def read_arrays(
    path: str | os.PathLike[str],
    *,
    x: str | Sequence[str],
    label: str,
    secrets: str | Sequence[str],
    group: str | None = None,
    dtype: torch.dtype = torch.float32,
) -> Dataset:
    """Return records from a ``.npz`` file of named arrays or a ``.parquet`` file of features.

    Labels, secrets and users may be text; whole numbers are codes already, and other labels are
    numbers. Features are treated as by ``from_arrays``. For columns of different kinds, or to
    standardise them, use ``read_table``, ``make_table`` and ``encode``.

    Args:
        path: the file.
        x: the array of features; in Parquet one column of lists of equal length, or names or
            patterns (``"mfcc_*"``) of columns of numbers.
        label: the array or column of labels.
        secrets: the arrays or columns of secrets.
        group: the array or column that names the user of each record.
        dtype: type of the result's ``x``.

    Raises:
        InputError: the file cannot be read, an array is missing, or an array cannot be used.
    """
    secret_names = [secrets] if isinstance(secrets, str) else list(secrets)
    file = existing(path)
    roles = [label, *secret_names, *([] if group is None else [group])]
    require(len(set(roles)) == len(roles), f"{sorted(roles)} name one array for two roles")
    if file.suffix.lower() == ".npz":
        require(isinstance(x, str), f"x is {x!r}; expected the name of one array")
        arrays = read_npz(file, [str(x), *roles])
        features = arrays[str(x)]
    elif file.suffix.lower() == ".parquet":
        frame = read_table(file)
        for name in roles:
            require_known(name, frame.columns, f"no {name!r} in {str(file)!r}")
        features = _frame_features(frame, [x] if isinstance(x, str) else list(x), roles)
        arrays = {name: frame[name].to_numpy() for name in roles}
    else:
        raise InputError(f"cannot read {str(file)!r}; expected a .npz or .parquet file")
    named = {name: _named_codes(arrays[name], name) for name in (label, *secret_names)}
    users = None if group is None else arrays[group]
    if users is not None and users.dtype.kind not in "iuf":
        users = _named_codes(users, str(group))[0]
    codes = {name: named[name][0] for name in secret_names}
    data = from_arrays(features, named[label][0], codes, users=users, dtype=dtype)
    values = {name: named[name][1] for name in secret_names}
    return replace(data, schema=Schema((), label, named[label][1], values))


def _array(values: Array | Tensor) -> Array:
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    # A copy: later writes to the caller's array must not change the dataset, and torch takes
    # neither read-only arrays nor another machine's byte order.
    return np.array(array, dtype=array.dtype.newbyteorder("="))


def _features(x: Array, dtype: torch.dtype) -> Tensor:
    require(x.ndim >= 2, f"x has shape {x.shape}; expected [n, ...] with features")
    require(x.size > 0, f"x is empty, of shape {x.shape}")
    require(x.dtype.kind in "fiub", f"x holds {x.dtype}; expected numbers")
    is_image = x.dtype == np.uint8 and x.ndim in (3, 4)
    features = (_channels_first(x) if is_image else torch.from_numpy(x)).to(dtype)
    features = features / 255 if is_image else features
    _refuse_not_finite(features, "x")
    return features


def _labels(y: Array, n: int, dtype: torch.dtype) -> Tensor:
    """Return codes ``[n]``, or numbers ``[n]`` or ``[n, k]``."""
    if y.ndim <= 1 and y.dtype.kind in "iub":
        return _codes(y, "y", n)
    require(y.dtype.kind in "iubf", f"y holds {y.dtype}; expected codes 0, 1, ... or numbers")
    require(y.ndim in (1, 2) and y.size > 0, f"y has shape {y.shape}; expected [{n}] or [{n}, k]")
    require(len(y) == n, f"y has {len(y)} records; x has {n}")
    whole = y.dtype.kind != "f"
    kind = torch.int64 if whole else dtype if dtype.is_floating_point else torch.float32
    labels = torch.from_numpy(y).to(kind)
    if not whole:
        _refuse_not_finite(labels[:, None], "y")
    require(bool((labels != labels[0]).any()), f"y has one value only, {labels[0].tolist()}")
    return labels


def _channels_first(x: Array) -> Tensor:
    images = torch.from_numpy(x)
    if images.ndim == 3:
        return images[:, None]
    if images.shape[3] in (1, 3, 4):
        return images.permute(0, 3, 1, 2).contiguous()
    require(
        images.shape[1] in (1, 3, 4),
        f"images have shape {tuple(images.shape)}; expected [n, h, w, c] with 1, 3 or 4 channels",
    )
    return images


def _refuse_not_finite(x: Tensor, name: str) -> None:
    bad = ~x.isfinite()
    count, rows = int(bad.sum()), int(bad.flatten(1).any(1).sum())
    require(
        count == 0,
        f"{name} is NaN or infinite in {count} places of {rows} records; correct or remove them",
    )


def _codes(values: Array, what: str, n: int) -> Tensor:
    _refuse_length(values, what, n)
    require(
        values.dtype.kind in "iub", f"{what} holds {values.dtype}; expected whole numbers 0, 1, ..."
    )
    codes = torch.from_numpy(values.astype(np.int64))
    negative = int((codes < 0).sum())
    require(
        negative == 0,
        f"{what} is negative in {negative} of {n} records; codes are 0, 1, ...; remove these",
    )
    require(bool((codes != codes[0]).any()), f"{what} has one value only, {int(codes[0])}")
    return codes


def _users(values: Array, n: int) -> Tensor:
    _refuse_length(values, "users", n)
    require(values.dtype.kind in "iu", f"users holds {values.dtype}; expected whole numbers")
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64))


def _refuse_length(values: Array, what: str, n: int) -> None:
    require(values.ndim == 1, f"{what} has shape {values.shape}; expected [{n}]")
    require(len(values) == n, f"{what} has {len(values)} records; x has {n}")


def _frame_features(frame: pd.DataFrame, patterns: list[str], roles: list[str]) -> Array:
    free = [str(name) for name in frame.columns if name not in roles]
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matches = [pattern] if pattern in free else [n for n in free if fnmatchcase(n, pattern)]
        require(len(matches) > 0, f"no column {pattern!r} for x{nearest(pattern, free)}")
        chosen.update(dict.fromkeys(matches))
    names = list(chosen)
    if len(names) == 1 and isinstance(frame[names[0]].iloc[0], (np.ndarray, list)):
        return _stacked(frame[names[0]])
    for name in names:
        require(kind_of(frame[name]) == "number", f"column {name!r} holds no numbers")
    return frame[names].to_numpy(dtype=np.float64, na_value=np.nan)


def _stacked(column: "pd.Series[Any]") -> Array:
    try:
        return np.stack([np.asarray(row, dtype=np.float64) for row in column])
    except (TypeError, ValueError) as error:
        raise InputError(
            f"column {str(column.name)!r} holds lists that differ in length or hold no numbers"
        ) from error


def _named_codes(values: Array, name: str) -> tuple[Array, tuple[str, ...]]:
    """Return codes of text or whole numbers with their names; other numbers stay unchanged."""
    if values.ndim != 1 or values.dtype.kind in "fc":
        return values, ()
    if values.dtype.kind in "iub":
        most = int(values.max(initial=0))
        return values, tuple(map(str, range(most + 1)))
    named = categories(pd.Series(values, name=name))
    codes = np.asarray(named.codes, dtype=np.int64)
    missing = int((codes < 0).sum())
    require(missing == 0, f"{name!r} is missing in {missing} of {len(codes)} records; remove these")
    return codes, tuple(map(str, named.categories))
