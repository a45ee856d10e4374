"""Weights from files, without running what a file may hold."""

import pickle
import struct
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leakgauge.core.checks import InputError, nearest, require

Model = TypeVar("Model", bound=nn.Module)

_DAMAGED = (
    *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError),
    struct.error,
)
_WRAPPER = "module."  # put before every name by DataParallel


def load_weights(model: Model, path: Path | str) -> Model:
    """Copy a stored state into a model, which is changed and returned.

    Args:
        model: a fresh one of ours, or a copy: its parameters and buffers are written.
        path: as for ``read_state``.

    Raises:
        InputError: the file cannot be used, or its names or shapes do not fit the model.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.torch import save_file
    >>> with TemporaryDirectory() as folder:
    ...     save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, f"{folder}/w")
    ...     load_weights(nn.Linear(2, 1), f"{folder}/w").weight.tolist()
    [[1.0, 1.0]]
    """
    known = model.state_dict()
    found = _renamed(read_state(path), getattr(model, "aliases", {}), known)
    what = f"weights {str(path)!r} do not fit {type(model).__name__}"
    # Only counts batches; older files do without it, and so does normalisation in eval mode.
    needed = [name for name in known if not name.endswith("num_batches_tracked")]
    missing = [name for name in needed if name not in found]
    extra = [name for name in found if name not in known]
    require(not missing, f"{what}: missing {_few(missing)}{_hint(missing, extra)}")
    require(not extra, f"{what}: unexpected {_few(extra)}")
    wrong = [name for name, value in found.items() if value.shape != known[name].shape]
    if wrong:
        came, wanted = list(found[wrong[0]].shape), list(known[wrong[0]].shape)
        raise InputError(f"{what}: {_few(wrong)} of other shapes ({came}, expected {wanted})")
    model.load_state_dict(found, strict=False)
    return model


def read_state(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a file by name, on the CPU.

    Args:
        path: safetensors, or what ``torch.save`` wrote of a state dict (read with
            ``weights_only=True``), alone or under ``"state_dict"``. A prefix ``module.`` of all
            names is taken off.

    Raises:
        InputError: there is no such file, it holds something else or would run code, or a value
            is not finite.
    """
    path = Path(path)
    what = f"weights {str(path)!r}"
    require(path.is_file(), f"{what}: no such file")
    found = _unwrapped(_read(path, what), what)
    for name, value in found.items():
        sound = not value.is_floating_point() or bool(value.isfinite().all())
        require(sound, f"{what}: {name!r} is not finite; export them anew")
    return found


def _read(path: Path, what: str) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, OSError):
        pass  # not safetensors, whatever its name says
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old formats
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{what} hold a pickle that would run code when read, or no weights at all; "
            "save the model's state_dict() as safetensors"
        ) from error
    except _DAMAGED as error:
        raise InputError(f"{what} cannot be read; save them as safetensors") from error


def _unwrapped(loaded: Any, what: str) -> dict[str, Tensor]:
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    sound = isinstance(loaded, Mapping) and all(isinstance(v, Tensor) for v in loaded.values())
    require(sound and len(loaded) > 0, f"{what} hold no state dict; expected tensors by name")
    state = {str(name): value for name, value in loaded.items()}
    if all(name.startswith(_WRAPPER) for name in state):
        return {name.removeprefix(_WRAPPER): value for name, value in state.items()}
    return state


def _renamed(
    state: dict[str, Tensor], aliases: Mapping[str, str], known: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """With the model's own names for parts that others call otherwise."""

    def own(name: str) -> str:
        for theirs, ours in aliases.items():
            if name not in known and name.startswith(theirs):
                return ours + name.removeprefix(theirs)
        return name

    return {own(name): value for name, value in state.items()}


def _few(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(repr(name) for name in shown[:3]) + more


def _hint(missing: list[str], extra: list[str]) -> str:
    return nearest(missing[0], extra) if missing and extra else ""
