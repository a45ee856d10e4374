"""Data features: what a module of the watched model says of records."""

from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Params, Task
from leakgauge.gradients.gradients import MAX_BYTES
from leakgauge.gradients.probing import explained, private
from leakgauge.gradients.walk import walk


def default_layers(task: Task, x: Tensor) -> list[str]:
    """Return the names of all layers with parameters: what an attacker sees is all of them.

    >>> from torch import nn
    >>> default_layers(Task(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))), torch.zeros(2, 2))
    ['0', '1']
    """
    return [one.name for one in walk(task, x)]


def check_names(task: Task, x: Tensor, features: str | None, layers: list[str]) -> None:
    """Refuse names that the model does not have.

    Args:
        task: the model.
        x: records ``[n, ...]``.
        features: a module; None for the default.
        layers: layers with parameters.

    Raises:
        InputError: one does not exist; the nearest one is named.
    """
    known = [name for name, _ in task.model.named_modules() if name]
    if features is not None:
        require_known(features, known, f"the model has no module {features!r} for data features")
    for name in layers:
        require_known(name, default_layers(task, x), f"the model has no layer {name!r} to watch")


def record_features(
    task: Task,
    params: Params,
    x: Tensor,
    features: str | None = None,
    *,
    max_bytes: int = MAX_BYTES,
) -> Tensor:
    """Return the data features of records ``[n, d]``.

    Args:
        task: the model, which stays unchanged.
        params: all trainable parameters by name.
        x: records ``[n, ...]``.
        features: the module whose output they are; None takes what the last layer takes in.
        max_bytes: of the features of a chunk of records.

    Raises:
        InputError: the module does not run, or its output has no axis of records.

    References:
        Privacy Tokens, section 3.2: the outputs of an intermediate layer, which the paper names
        for its four networks alone.

    >>> from torch import nn
    >>> task = Task(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    >>> params = dict(task.model.named_parameters())
    >>> list(record_features(task, params, torch.ones(5, 2)).shape)
    [5, 3]
    """
    last = walk(task, x)[-1].name if features is None else features
    seen: list[Tensor] = []
    own = private(task, params).model  # its hook ends with it
    module = own.get_submodule(last)
    if features is None:
        module.register_forward_pre_hook(lambda _, given: seen.append(_first(given)))
    else:
        module.register_forward_hook(lambda _, __, output: seen.append(_first(output)))
    parts, size = [], 2
    with torch.no_grad(), torch.random.fork_rng(enabled=own.training):
        start = 0
        while start < len(x):
            chunk = x[start : start + size]
            seen.clear()
            with explained(f"{type(own).__name__} refuses inputs {list(chunk.shape)}"):
                own(chunk)
            parts.append(_flat(seen, len(chunk), last))
            start += size
            size = max(1, min(1024, max_bytes // max(1, parts[-1][0].nbytes)))
    return torch.cat(parts)


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, tuple) else given


def _flat(seen: list[Any], count: int, name: str) -> Tensor:
    where = f"module {name!r}" if name else "the model"
    require(
        len(seen) > 0 and isinstance(seen[-1], Tensor),
        f"{where} does not run, or gives no tensor; name another one for data features",
    )
    value = seen[-1]
    require(
        value.shape[:1] == (count,),
        f"{where} gives {list(value.shape)} for {count} records; expected records on its first "
        "axis; name another one for data features",
    )
    flat: Tensor = value.detach().reshape(count, -1).float()
    return flat
