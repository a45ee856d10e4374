"""Read weights from files without running code in them."""

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
from leakgauge.core.types import require_plain

Model = TypeVar("Model", bound=nn.Module)

_DAMAGED = (
    *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError),
    struct.error,
)
_UNDER = ("state_dict", "model_state_dict")  # keys of training loops
_WRAPPER = "module."  # DataParallel puts it before every name


def load_weights(model: Model, path: Path | str) -> Model:
    """Return the model with the parameters and buffers of a file.

    Args:
        model: the model, changed in place.
        path: a file that ``read_state`` reads.

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
    state = _renamed(read_state(path), getattr(model, "aliases", {}), known)
    what = f"weights {str(path)!r} do not fit {type(model).__name__}"
    # num_batches_tracked: older files lack it, and normalisation in eval mode ignores it.
    needed = [name for name in known if not name.endswith("num_batches_tracked")]
    missing = [name for name in needed if name not in state]
    extra = [name for name in state if name not in known]
    hint = nearest(missing[0], extra) if missing and extra else ""
    require(not missing, f"{what}: missing {_few(missing)}{hint}")
    require(not extra, f"{what}: unexpected {_few(extra)}")
    wrong = [name for name, value in state.items() if value.shape != known[name].shape]
    if wrong:
        came, wanted = list(state[wrong[0]].shape), list(known[wrong[0]].shape)
        raise InputError(f"{what}: {_few(wrong)} of other shapes ({came}, expected {wanted})")
    model.load_state_dict(state, strict=False)
    return model


def read_state(path: Path | str) -> dict[str, Tensor]:
    """Return the tensors of a file by name, on the CPU.

    Args:
        path: a safetensors file, or a state dict that ``torch.save`` wrote (read with
            ``weights_only=True``), alone or under ``"state_dict"`` or ``"model_state_dict"``. If
            all names start with ``module.``, they lose this prefix.

    Raises:
        InputError: the file is missing, does not hold tensors by name, would run code, or holds a
            value that is not finite.
    """
    path = Path(path)
    what = f"weights {str(path)!r}"
    require(path.is_file(), f"{what}: no such file")
    state = _unwrapped(_read(path, what), what)
    for name, value in state.items():
        require_plain(value, f"{what}: {name!r}")
        sound = not value.is_floating_point() or bool(value.isfinite().all())
        require(sound, f"{what}: {name!r} is not finite; export them anew")
    return state


def _read(path: Path, what: str) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, OSError):
        pass  # not safetensors, regardless of the suffix
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
    if isinstance(loaded, Mapping):
        within = (loaded.get(key) for key in _UNDER)
        loaded = next((one for one in within if isinstance(one, Mapping)), loaded)
    sound = isinstance(loaded, Mapping) and all(isinstance(v, Tensor) for v in loaded.values())
    require(sound and len(loaded) > 0, f"{what} hold no state dict; expected tensors by name")
    state = {str(name): value for name, value in loaded.items()}
    if all(name.startswith(_WRAPPER) for name in state):
        return {name.removeprefix(_WRAPPER): value for name, value in state.items()}
    return state


def _renamed(
    state: dict[str, Tensor], aliases: Mapping[str, str], known: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the state with the model's names in place of their aliases."""

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
