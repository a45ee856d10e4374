"""Take the arrays out of a message of a federation, without an effect on its training."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.core.names import few

LOG = logging.getLogger("leakgauge")

_NO_ARRAY = (TypeError, ValueError, RuntimeError, OverflowError, KeyError, EOFError, OSError)


@contextmanager
def harmless(what: str, log: Callable[[str], None] = LOG.warning) -> Iterator[None]:
    """Log any error in one line, so that the training continues.

    >>> said = []
    >>> with harmless("round 1", said.append):
    ...     raise KeyError("a dtype")
    >>> said
    ["round 1: not kept (KeyError: 'a dtype'); the training continues"]
    """
    try:
        yield
    except InputError as error:
        log(str(error))
    except Exception as error:  # noqa: BLE001 - a message may hold anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        log(f"{what}: not kept ({reason}); the training continues")


def tensors_in(data: Mapping[str, Any], what: str) -> dict[str, Tensor]:
    """Return copies of the arrays of numbers in a message, by name; the log names other values.

    Args:
        data: arrays, tensors, numbers or lists of numbers by name. Names of nested mappings are
            joined by dots.
        what: words for the message.

    Raises:
        InputError: two values have one name.
    """
    found: dict[str, Tensor] = {}
    other: list[str] = []
    for name, value in _flat(data, ""):
        require(name not in found, f"{what}: two arrays have the name {name!r}; not kept")
        try:
            leaf = value if isinstance(value, Tensor) else _tensor(value)
            found[name] = leaf.detach().cpu().clone().contiguous()
            bytes_of({name: found[name].flatten()[:0]})
        except _NO_ARRAY:
            found.pop(name, None)
            other.append(name)
    if other:
        LOG.warning("%s: %s left out, as files hold only arrays of numbers", what, few(other))
    return found


def bytes_of(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file.

    Raises:
        InputError: a tensor is of a type or layout that such a file cannot hold.
    """
    try:
        # clones, since tied weights share memory
        return save(
            {name: leaf.detach().cpu().contiguous().clone() for name, leaf in tensors.items()}
        )
    except (SafetensorError, KeyError, ValueError, RuntimeError, TypeError) as error:
        types = ", ".join(sorted({str(leaf.dtype) for leaf in tensors.values()}))
        raise InputError(
            f"tensors of {types} cannot be kept ({' '.join(str(error).split())[:200]}); send "
            "dense tensors of floats or whole numbers"
        ) from error


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _tensor(value: Any) -> Tensor:
    """Return an array of numbers as a tensor; a file's own array is read by its ``numpy``."""
    return torch.as_tensor(value.numpy() if hasattr(value, "numpy") else value)
