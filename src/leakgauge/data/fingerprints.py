"""Fingerprints of data: equal for equal content, on every machine."""

import hashlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from pandas.api import types as dtypes
from torch import Tensor

from leakgauge.core.types import Dataset
from leakgauge.data.columns import numbers


def fingerprint(data: pd.DataFrame | Dataset | Mapping[str, Tensor]) -> str:
    """Return the sha256 of a table, or of the tensors of a dataset or model, in hex.

    It depends on a table's column names and values, not on its index or on how it stores text and
    missing values. Encoded numbers can differ in their last digits between processors, and so can
    the fingerprint of a dataset; that of a table cannot.

    >>> fingerprint(pd.DataFrame({"age": [20, 30]}))[:16]
    '1fdb9bea2d54fac8'
    """
    digest = hashlib.sha256()
    for part in _parts(data):
        # Lengths keep two different lists of parts from giving the same bytes.
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(data: pd.DataFrame | Dataset | Mapping[str, Tensor]) -> Iterable[bytes]:
    if isinstance(data, pd.DataFrame):
        return _frame_parts(data)
    if isinstance(data, Dataset):
        return _dataset_parts(data)
    return chain.from_iterable(_tensor_parts(name, tensor) for name, tensor in data.items())


def _frame_parts(frame: pd.DataFrame) -> Iterable[bytes]:
    yield f"table {len(frame)} {frame.shape[1]}".encode()
    for position, name in enumerate(frame.columns):
        yield str(name).encode("utf-8", "surrogatepass")
        yield from _column_parts(frame.iloc[:, position])


def _column_parts(column: "pd.Series[Any]") -> Iterable[bytes]:
    plain = not isinstance(column.dtype, pd.CategoricalDtype)
    if plain and dtypes.is_integer_dtype(column.dtype) and not column.isna().any():
        yield b"integers"
        yield column.to_numpy().astype("<i8").tobytes()
    elif plain and dtypes.is_numeric_dtype(column.dtype) and not dtypes.is_bool_dtype(column.dtype):
        values = numbers(column)
        # One NaN for all, and no negative zero.
        yield b"numbers"
        yield np.where(np.isnan(values), np.nan, values + 0.0).astype("<f8").tobytes()
    else:
        codes, uniques = _factorized(column)
        yield b"values"
        yield codes.astype("<i8").tobytes()
        for value in uniques:
            yield f"{type(value).__name__ == 'str':d}{value}".encode("utf-8", "surrogatepass")


def _factorized(column: "pd.Series[Any]") -> tuple[Any, Any]:
    try:
        return pd.factorize(column)
    except TypeError:
        # Lists and arrays cannot be hashed; their text can.
        plain = [v.tolist() if isinstance(v, np.ndarray) else v for v in column]
        return pd.factorize(pd.Series([str(value) for value in plain], dtype=object))


def _dataset_parts(data: Dataset) -> Iterable[bytes]:
    yield from (b"dataset", *_tensor_parts("x", data.x), *_tensor_parts("y", data.y))
    for name in sorted(data.secrets):
        yield from _tensor_parts(f"secret {name}", data.secrets[name])
    if data.users is not None:
        yield from _tensor_parts("users", data.users)


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return type, shape and values of a tensor as bytes, also where NumPy lacks the type."""
    return b"\n".join(_tensor_parts("", tensor))


def _tensor_parts(name: str, tensor: Tensor) -> Iterable[bytes]:
    plain = tensor.detach()
    if plain.is_meta or plain.is_quantized:
        yield f"{name} {plain.dtype} {tuple(plain.shape)} {plain}".encode()
        return
    plain = plain.to_dense() if plain.layout != torch.strided else plain
    plain = plain.resolve_conj().resolve_neg().cpu()
    try:
        array = plain.numpy()
    except TypeError:  # NumPy lacks the type, such as bfloat16
        raw = plain.contiguous().reshape(-1).view(torch.uint8).numpy()
        yield f"{name} {plain.dtype} {tuple(plain.shape)}".encode()
        yield raw.tobytes()
        return
    ordered = array.astype(array.dtype.newbyteorder("<"))
    yield f"{name} {ordered.dtype.str} {array.shape}".encode()
    yield ordered.tobytes()
