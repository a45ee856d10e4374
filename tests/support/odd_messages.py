"""Draw odd values of federated messages by seed, and look at values without changing them."""

import errno
import random
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

NAMES = (
    "weight",
    "bias",
    "0.weight",
    "arrays",
    "",
    " ",
    "a.b",
    "../x",
    "é\u202e",
    "\n",
    "0",
    "x" * 300,
)
HUGE = (10**400, -(10**400), 2**63, 10**100, 1e308, 5e-324)
NUMBERS = (0, 1, 2, -3, 0.5, True, float("nan"), float("inf"), -float("inf"), *HUGE)
WORDS = ("", "1", "0.1", "٣", "²", "nan", "/home/me", "x" * 5000, "a\nb")


def plain_arrays() -> dict[str, np.ndarray]:
    """Return arrays that a file can hold."""
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    return {
        "float32": one,
        "float64": one.astype(np.float64),
        "float16": one.astype(np.float16),
        "int64": np.array([2**62, -(2**62)]),
        "uint8": one.astype(np.uint8),
        "bool": one > 2,
        "nan": np.array([np.nan, np.inf, -np.inf], np.float32),
        "empty": np.zeros((0,), np.float32),
        "empty columns": np.zeros((3, 0)),
        "scalar": np.array(1.5),
        "every second": one[:, ::2],
        "transposed": one.T,
        "fortran": np.asfortranarray(one),
        "backwards": one[::-1],
        "read only": _read_only(one.copy()),
        "one for all": np.broadcast_to(np.float32(2), (2, 3)),
    }


def odd_arrays() -> dict[str, np.ndarray]:
    """Return arrays that a file cannot hold, or that torch does not read."""
    return {
        "text": np.array(["a", "é"]),
        "bytes": np.array([b"a", b"b"]),
        "complex": np.ones(2, complex),
        "long": np.ones(2, np.longdouble),
        "dates": np.array(["2024-01-01"], dtype="datetime64[D]"),
        "fields": np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]),
        "other byte order": np.ones(2, ">f4"),
        "uint64": np.array([2**64 - 1], np.uint64),
    }


def objects() -> dict[str, Any]:
    """Return values other than arrays, as NVFlare may send them."""
    return {
        "none": None,
        "bytes": b"abc",
        "text": "rbf",
        "set": {1, 2},
        "object": _Object(),
        "raises": _Raises(),
        "object array": np.array([None, {}, "x"], dtype=object),
        "list": [1.0, 2.0],
        "ragged": [[1.0], [1.0, 2.0]],
        "number": 3,
        "huge": 10**400,
        "nested": {"a": {"b": np.ones(2), "c": "x"}},
        "numbered": {1: np.ones(2), None: 2},
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "every second": torch.arange(6.0).reshape(2, 3)[:, ::2],
        "gradient": torch.ones(2, requires_grad=True),
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.ones(2, device="meta"),
        "complex tensor": torch.ones(2, dtype=torch.complex64),
        "no elements": torch.zeros(0),
    }


def seen(value: Any) -> Any:
    """Return all that a value holds, in plain types, so that any change shows."""
    if isinstance(value, Mapping):
        return [type(value).__name__, *((seen(k), seen(v)) for k, v in value.items())]
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(seen, value)]
    if isinstance(value, Tensor):
        held = value.to_dense() if value.is_sparse else value
        content = "" if value.is_meta else repr(held.detach().contiguous().view(-1).tolist())
        stride = () if value.is_sparse else value.stride()
        return ["tensor", id(value), str(value.dtype), value.shape, stride, content,
                value.requires_grad, value.grad is None]  # fmt: skip
    if isinstance(value, np.ndarray):
        content = repr(value.tolist()) if value.dtype.hasobject else value.tobytes()
        flags = value.flags.c_contiguous, value.flags.f_contiguous, value.flags.writeable
        return ["array", id(value), str(value.dtype), value.shape, value.strides, flags, content]
    return [type(value).__name__, repr(value)]


@contextmanager
def folder_for(folder: Path, draw: random.Random) -> Iterator[tuple[Path, str]]:
    """Give a folder, and in one of four cases one that really fails; and the name of the case."""
    case = draw.choice(["sound"] * 9 + ["a file", "below a file", "full"])
    place = folder / "kept"
    if case == "a file":
        place.write_text("not a folder")
    elif case == "below a file":
        (folder / "file").write_text("not a folder")
        place = folder / "file" / "kept"
    with _full() if case == "full" else _nothing():
        yield place, case


@contextmanager
def _full() -> Iterator[None]:
    """Let the system refuse to write more than a few bytes to any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


class _Object:
    """A value that no array takes."""

    def __repr__(self) -> str:
        return "_Object()"


class _Raises:
    """A value that refuses to be read."""

    @property
    def numpy(self) -> Any:
        raise OSError(errno.EIO, "no")

    def __array__(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        return "_Raises()"
