"""Read weights from files without running code in them."""

import pickle
import struct
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from leakgauge.core.checks import InputError, nearest, require
from leakgauge.core.names import ANYWHERE, COUNTERS, few, is_counter, ways
from leakgauge.core.types import require_plain

Model = TypeVar("Model", bound=nn.Module)

_DAMAGED = (
    *(OSError, EOFError, RuntimeError, ValueError, TypeError, LookupError, AttributeError),
    struct.error,
)
_UNUSED = ("num_batches_tracked", *COUNTERS)
_EXTRA = "_extra_state"  # what a module keeps besides tensors
_KEYS = ("", "state_dict", "model_state_dict", "model", "net")  # of training loops
_ASIDE = ("loss", "criterion", "metric")  # in the first word of a name: not of the network
_DEEPEST = 4  # keys that may lead to a state dict
_Copies = Mapping[str, Mapping[str, Tensor]]


def load_weights(model: Model, path: Path | str) -> Model:
    """Return the model with the parameters and buffers of a file.

    Args:
        model: the model, changed in place.
        path: a safetensors file, or a state dict that ``torch.save`` wrote, alone or under a key of
            a training loop. Words that a wrapper put into names may differ: those of
            ``nn.DataParallel``, ``torch.compile``, Opacus, Lightning, ``AveragedModel``.

    Raises:
        InputError: the file cannot be used, holds several copies of the model, or its names or
            shapes do not fit.

    >>> from tempfile import TemporaryDirectory
    >>> from safetensors.torch import save_file
    >>> with TemporaryDirectory() as folder:
    ...     save_file({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, f"{folder}/w")
    ...     load_weights(nn.Linear(2, 1), f"{folder}/w").weight.tolist()
    [[1.0, 1.0]]
    """
    what = f"weights {str(path)!r}"
    copies = _copies(_read(Path(path), what), what)
    known = model.state_dict(keep_vars=True)
    found = _found(model, known, copies, what)
    wrong = [name for name, value in found.items() if value.shape != known[name].shape]
    if wrong:
        came, wanted = list(found[wrong[0]].shape), list(known[wrong[0]].shape)
        raise InputError(
            f"{what} do not fit {type(model).__name__}: {few(wrong)} of other shapes ({came}, "
            f"expected {wanted})"
        )
    for name, value in found.items():
        _check(value, f"{what}: {name!r}")
        require(
            value.is_floating_point() or not known[name].is_floating_point(),
            f"{what}: {name!r} is {value.dtype}, which the model holds as {known[name].dtype}; "
            "save the weights of the float model, not of a quantised one",
        )
    _check_tied(known, found, what)
    model.load_state_dict(found, strict=False)
    return model


def read_state(path: Path | str) -> dict[str, Tensor]:
    """Return the tensors of a file by name, on the CPU.

    Args:
        path: a safetensors file, or a state dict that ``torch.save`` wrote (read with
            ``weights_only=True``), alone or under a key of a training loop, such as
            ``"state_dict"`` or ``"model"``. If all names start with ``module.``, ``_module.`` or
            ``_orig_mod.``, they lose this prefix.

    Raises:
        InputError: the file is missing, does not hold tensors by name or holds several state dicts,
            would run code, or holds a value that is not finite.
    """
    what = f"weights {str(path)!r}"
    copies = _copies(_read(Path(path), what), what)
    keys = [key for key in copies if key in _KEYS] or list(copies)
    require(
        len(keys) == 1,
        f"{what} hold {len(keys)} state dicts, under {few(keys)}; save one of them alone",
    )
    state = copies[keys[0]]
    for name, value in state.items():
        _check(value, f"{what}: {name!r}")
    while all(name.partition(".")[0] in ANYWHERE and "." in name for name in state):
        state = {name.partition(".")[2]: value for name, value in state.items()}
    return state


def _check(value: Tensor, what: str) -> None:
    require_plain(value, what)
    sound = not value.is_floating_point() or bool(value.isfinite().all())
    require(sound, f"{what} is not finite; export them anew")


def _read(path: Path, what: str) -> Any:
    require(path.is_file(), f"{what}: no such file")
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


def _copies(loaded: Any, what: str) -> dict[str, dict[str, Tensor]]:
    """Return the state dicts in what a file holds, by the keys that lead to them."""
    copies = dict(_within(loaded, ""))
    quantised = next((name for one in copies.values() for name in one if _is_packed(name)), None)
    require(
        quantised is None,
        f"{what}: {quantised!r} is a quantised weight; save the state_dict() of the float model",
    )
    plain = {
        key: {name: value for name, value in one.items() if isinstance(value, Tensor)}
        for key, one in copies.items()
        if all(isinstance(v, Tensor) or k.endswith(_EXTRA) for k, v in one.items())
    }
    require(len(plain) > 0, f"{what} hold no state dict; expected tensors by name")
    return plain


def _within(loaded: Any, key: str, depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each mapping of tensors by name, with the keys that lead to it, joined by dots."""
    if not isinstance(loaded, Mapping) or depth > _DEEPEST:
        return
    named = {name: value for name, value in loaded.items() if isinstance(name, str)}
    inner = {name: value for name, value in named.items() if isinstance(value, Mapping)}
    if not inner and len(named) == len(loaded) and any(map(_is_weight, named.items())):
        yield key, named
    for name, value in inner.items():
        yield from _within(value, f"{key}.{name}" if key else name, depth + 1)


def _is_weight(item: tuple[str, Any]) -> bool:
    return isinstance(item[1], Tensor) or _is_packed(item[0])


def _is_packed(name: str) -> bool:
    """Return whether torch's quantisation made this name."""
    return "_packed_params" in name.split(".")


def _found(
    model: nn.Module, known: Mapping[str, Tensor], copies: _Copies, what: str
) -> dict[str, Tensor]:
    """Return the tensors by the model's names from the one copy that has them all."""
    needed = _needed(known)
    kind = type(model).__name__
    fits = [
        (f"{key}: {few(way.values(), 2)}" if key else few(way.values(), 2), state, way)
        for key, state in copies.items()
        for way in _ways(state, known, needed, getattr(model, "aliases", {}))
    ]
    if len(fits) > 1:
        shaped = [
            one for one in fits if all(one[1][s].shape == known[n].shape for n, s in one[2].items())
        ]
        fits = shaped or fits
    if len(fits) > 1:
        raise InputError(
            f"{what} hold {len(fits)} copies of {kind} ({'; '.join(one[0] for one in fits[:4])}), "
            f"whose names are {few(known)}; save one of them alone"
        )
    if not fits:
        state = max(copies.values(), key=lambda one: len(one.keys() & known.keys()))
        missing = [name for name in needed if name not in state]
        extra = [name for name in state if name not in known]
        others = f"; unexpected {few(extra)}" if extra else ""
        close = nearest(missing[0], extra) if extra else ""
        hint = close if close.startswith("; did") else ""  # the others are known already
        raise InputError(f"{what} do not fit {kind}: missing {few(missing)}{others}{hint}")
    _, state, way = fits[0]
    used = set(way.values())
    extra = [name for name in state if name not in used and not _is_aside(name)]
    require(not extra, f"{what} do not fit {kind}: unexpected {few(extra)}; it has {few(known)}")
    return {name: state[theirs] for name, theirs in way.items()}


def _needed(known: Mapping[str, Tensor]) -> list[str]:
    """Return the names that a file must have: one of tied ones, and no count of batches.

    Older files lack ``num_batches_tracked``, and normalisation in eval mode ignores it.
    """
    first = {id(leaf): name for name, leaf in reversed(list(known.items()))}
    needed = set(first.values())
    return [name for name in known if name in needed and not name.endswith(_UNUSED)]


def _ways(
    state: Collection[str],
    known: Collection[str],
    needed: Collection[str],
    aliases: Mapping[str, str],
) -> list[dict[str, str]]:
    """Return as ``ways``, with the model's own names or else with their aliases."""
    found = ways(state, known, needed)
    if found or not aliases:
        return found

    def alias(name: str) -> str:
        for theirs, ours in aliases.items():
            if name.startswith(ours):
                return theirs + name.removeprefix(ours)
        return name

    own = {alias(name): name for name in known}
    return [
        {own[name]: theirs for name, theirs in way.items()}
        for way in ways(state, own, [alias(name) for name in needed])
    ]


def _is_aside(name: str) -> bool:
    """Return whether no output depends on a tensor: a wrapper's count, or one of a loss."""
    return is_counter(name) or any(word in name.partition(".")[0].lower() for word in _ASIDE)


def _check_tied(known: Mapping[str, Tensor], found: Mapping[str, Tensor], what: str) -> None:
    """Refuse different values for names that share one tensor in the model."""
    first: dict[int, str] = {}
    for name, value in found.items():
        other = first.setdefault(id(known[name]), name)
        require(
            other == name or torch.equal(found[other], value),
            f"{what}: {other!r} and {name!r} differ, but the model shares one tensor between them; "
            "build the model without tied weights",
        )
