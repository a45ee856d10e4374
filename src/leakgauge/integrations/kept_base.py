"""The checksum of weights that a client has and never sends, such as the base under adapters."""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.integrations.kept_file import KeptBase
from leakgauge.integrations.kept_tensors import named_as

LOG = logging.getLogger("leakgauge")

ModelSource = nn.Module | Callable[[], nn.Module]
"""A client's model, or a function that returns it."""

_known: WeakKeyDictionary[nn.Module, tuple[Any, KeptBase]] = WeakKeyDictionary()
"""The last checksum of each model, with what it depends on."""


def lacking(model: nn.Module, supplied: Collection[str]) -> dict[str, Tensor]:
    """Return the model's parameters that an update does not supply, by name.

    >>> list(lacking(nn.Linear(2, 1), ["bias"]))
    ['weight']
    """
    return {name: leaf for name, leaf in model.named_parameters() if name not in supplied}


def base_of(model: nn.Module, supplied: Collection[str]) -> KeptBase | None:
    """Return number and checksum of the parameters that an update does not supply; None for none.

    Names do not count, so wrappers and adapters do not matter; neither does a type that holds the
    same numbers.

    Args:
        model: the client's, or the auditor's.
        supplied: the model's names of the tensors that the client received.
    """
    leaves = lacking(model, supplied)
    if not leaves:
        return None
    state = tuple((name, leaf.data_ptr(), leaf._version) for name, leaf in leaves.items())
    if model not in _known or _known[model][0] != state:
        _known[model] = state, KeptBase(sha256=digest(leaves.values()), tensors=len(leaves))
    return _known[model][1]


def digest(leaves: Iterable[Tensor]) -> str:
    """Return the sha256 of the shapes and numbers of tensors in any order, in hex.

    >>> one, other = torch.ones(2), torch.zeros(3)
    >>> digest([one, other]) == digest([other.bfloat16(), one.double()])
    True
    """
    return hashlib.sha256("".join(sorted(map(_content, leaves))).encode()).hexdigest()


def refuse_other_base(
    kept: KeptBase | None, model: nn.Module, supplied: Collection[str], what: str
) -> None:
    """Refuse a model whose weights that an update lacks are not those that the client had.

    Raises:
        InputError: they differ; the message begins with ``what``.
    """
    if kept is None:
        return
    own = base_of(model, supplied)
    here = "none" if own is None else f"{own.tensors} tensors of checksum {own.sha256[:8]}"
    require(
        own == kept,
        f"{what}: the client's model has {kept.tensors} tensors of checksum {kept.sha256[:8]} that "
        f"it never sent, and the task's model has {here}; load the base weights that the clients "
        "loaded, in their type",
    )


class BaseSource:
    """Finds the checksum of what clients do not send; the model is needed once.

    Args:
        model: the client's model, or a function that returns it; None for no checksum.
    """

    def __init__(self, model: ModelSource | None) -> None:
        self._model = model
        self._found: dict[frozenset[str], KeptBase | None] = {}

    def base(self, received: Mapping[str, Tensor]) -> KeptBase | None:
        """Return the checksum beside the tensors that a client received; None if there is none.

        An error is logged, and gives None: the training and the update are worth more.
        """
        key = frozenset(received)
        if self._model is not None and key not in self._found:
            self._found[key] = self._made(received)
        return self._found.get(key)

    def _made(self, received: Mapping[str, Tensor]) -> KeptBase | None:
        try:
            made = self._model
            model = made if isinstance(made, nn.Module) or made is None else made()
            if not isinstance(model, nn.Module):
                raise InputError(f"model gives {type(model).__name__}; expected a torch.nn.Module")
            return base_of(model, named_as(dict(received), model, "the received tensors"))
        except Exception as error:  # noqa: BLE001 - a user's function may raise anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            LOG.warning("the checksum of frozen weights is not kept (%s)", reason)
            return None


def _content(leaf: Tensor) -> str:
    """Return the sha256 of one tensor: floats as float32 where this holds them, else as float64."""
    plain = leaf.detach().cpu()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    if plain.is_floating_point():
        single = plain.float()
        plain = single if torch.equal(single.to(plain.dtype), plain) else plain.double()
    array = plain.contiguous().numpy()
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    content = hashlib.sha256(f"{array.dtype.str} {array.shape} ".encode())
    content.update(array.tobytes())
    return content.hexdigest()
