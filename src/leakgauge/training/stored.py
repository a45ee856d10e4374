"""Files of updates: safetensors with the numbers of the update in the header."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from leakgauge.core.checks import InputError, require
from leakgauge.training.catalog import SGD

_FORMAT = "leakgauge update 1"
_WITH_OPTIMIZER = "leakgauge update 2"
"""Format with an optimizer other than plain SGD, which readers of the first would ignore."""
_FIGURES: Mapping[str, Any] = {"lr": float, "steps": int, "batch_size": int, "records": int}
_ASIDE = ("buffers", "held")
_GROUPS = ("values", "before", *_ASIDE)

LONGEST_NAME = 1000
"""Largest number of characters of a parameter's name; a longer one would fill a message."""


def write_parts(path: Path, parts: Mapping[str, Any]) -> None:
    """Write the attributes of an ``Update``, given by name."""
    tensors = {
        f"{group}/{name}": leaf.detach().cpu().contiguous().clone()
        for group in _GROUPS
        for name, leaf in parts[group].items()
    }
    if parts["labels"] is not None:
        tensors["labels"] = parts["labels"].cpu().contiguous()
    header = {"format": _FORMAT, "kind": parts["kind"]}
    header["names"] = json.dumps(list(parts["before"]))  # The file does not keep their order.
    for name, convert in _FIGURES.items():
        if parts[name] is not None:
            header[name] = repr(convert(parts[name]))
    if parts["optimizer"] != SGD or parts["rates"]:
        header["format"], header["optimizer"] = _WITH_OPTIMIZER, parts["optimizer"]
        header["rates"] = json.dumps(list(map(float, parts["rates"])))
    try:
        save_file(tensors, path, header)
    except (SafetensorError, OSError) as error:
        raise InputError(f"cannot write update {str(path)!r}; choose another path") from error


def read_parts(path: Path) -> dict[str, Any]:
    """Return the attributes of the ``Update`` that a file holds.

    Raises:
        InputError: the file is missing, is a pickle, or does not hold an update.
    """
    what = f"update {str(path)!r}"
    header, tensors = _read(path, what)
    require(
        header.get("format") in (_FORMAT, _WITH_OPTIMIZER),
        f"{what} lacks the header of leakgauge; write it with Update.save, which keeps kind and lr",
    )
    _refuse_long((*tensors, header.get("kind", ""), header.get("optimizer", "")), what)
    try:
        parts: dict[str, Any] = {
            name: convert(header[name]) for name, convert in _FIGURES.items() if name in header
        }
        order = json.loads(header["names"])
        for group in ("values", "before"):
            parts[group] = {name: tensors[f"{group}/{name}"] for name in order}
        parts["kind"] = header["kind"]
        parts["optimizer"] = header.get("optimizer", SGD)
        parts["rates"] = tuple(map(float, json.loads(header.get("rates", "[]"))))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{what} has a damaged header; write it anew") from error
    parts["labels"] = tensors.get("labels")
    for group in _ASIDE:
        prefix = f"{group}/"
        parts[group] = {
            name.removeprefix(prefix): leaf
            for name, leaf in tensors.items()
            if name.startswith(prefix)
        }
    return parts


def _refuse_long(names: Iterable[str], what: str) -> None:
    for name in names:
        require(
            len(name) <= LONGEST_NAME,
            f"{what} has a name of {len(name):,} characters, {name[:20]!r}...; expected at most "
            f"{LONGEST_NAME}",
        )


def _read(path: Path, what: str) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the header and the tensors of a safetensors file."""
    require(path.is_file(), f"{what}: no such file")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, tensors
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{what} is not a safetensors file; pickles are refused, as reading one can run code: "
            "write it with Update.save"
        ) from error
