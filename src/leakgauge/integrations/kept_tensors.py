"""Kept tensors under the names, and in the types, of a model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from leakgauge.core.checks import InputError, require
from leakgauge.core.names import model_way, renamed
from leakgauge.core.types import Params
from leakgauge.integrations.kept import checksum
from leakgauge.training.state import in_types_of
from leakgauge.training.update import Update

Tensors = dict[str, Tensor]


def read_tensors(path: Path, wanted: str) -> Tensors:
    """Return the tensors of a file with a checksum.

    Raises:
        InputError: the file is missing, damaged, or has another checksum.
    """
    try:
        content = path.read_bytes()
        require(
            checksum(content) == wanted,
            f"{str(path)!r} is damaged or was changed: it does not match its checksum",
        )
        return dict(load(content))
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read ({error.strerror})") from error
    except SafetensorError as error:
        raise InputError(f"{str(path)!r} is not a safetensors file ({error})") from error


def named_as(tensors: Tensors, model: nn.Module, what: str) -> Tensors:
    """Return tensors in the model's order, names and types, where theirs are others or coarser."""
    if all(name.isdecimal() for name in tensors):  # a file does not keep their order
        tensors = _in_order(tensors, model, what)
    whole = renamed(tensors, model_way(tensors, model, f"{what}: the update"))
    whole = in_types_of(model, whole)
    known = {name: whole[name] for name in model.state_dict() if name in whole}
    return {**known, **whole}


def in_dtypes_of(model: nn.Module, update: Update) -> Update:
    """Return an update in the model's types, where its own are finer.

    The difference of the weights is taken before they are rounded to the model's type.
    """
    own = {name: leaf.dtype for name, leaf in model.state_dict().items()}

    def finer(part: Params) -> bool:
        return any(leaf.dtype != own[name] for name, leaf in part.items())

    if not finer(update.before) and not finer(update.values):
        return update
    values, kind = update.values, update.kind
    if kind == "weights" and finer(values):
        kind = "change"
        values = {n: leaf.double() - update.before[n].double() for n, leaf in values.items()}
    parts = {"before": update.before, "held": update.held, "buffers": update.buffers}
    cast: Any = {name: in_types_of(model, part, finer=True) for name, part in parts.items()}
    return replace(update, kind=kind, values=in_types_of(model, values, finer=True), **cast)


def _in_order(tensors: Tensors, model: nn.Module, what: str) -> Tensors:
    """Return tensors without names under those of the model's state dict or of its parameters."""
    state = model.state_dict()
    parameters = [name for name, _ in model.named_parameters()]
    orders = (
        list(state),
        parameters,
        [name for name, leaf in model.named_parameters() if leaf.requires_grad],
        [name for name in state if not name.endswith("num_batches_tracked")],
    )
    numbers = sorted(tensors, key=int)
    absent = next((at for at, one in enumerate(numbers) if int(one) != at), None)
    require(absent is None, f"{what}: of tensors without names, number {absent} was not kept")
    leaves = [tensors[at] for at in numbers]
    for names in orders:
        shapes = [state[name].shape for name in names]
        if shapes == [leaf.shape for leaf in leaves]:
            return dict(zip(names, leaves, strict=True))
    raise InputError(
        f"{what}: {len(tensors)} tensors without names came for {type(model).__name__}, which "
        f"has {len(state)}, {len(parameters)} of them parameters; let the task build the clients' "
        "model"
    )
