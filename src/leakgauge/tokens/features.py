"""Data features: what a module of the watched model says of records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Params, Task
from leakgauge.gradients.gradients import MAX_BYTES
from leakgauge.gradients.probing import explained, fresh_buffers, private
from leakgauge.gradients.walk import walk


@dataclass(frozen=True)
class Watched:
    """The names of what is watched of a network.

    Attributes:
        features: the module whose output is the data feature.
        layers: the layers whose gradients are watched.
    """

    features: str
    layers: tuple[str, ...]


WATCHED: Mapping[str, Watched] = {
    # 768 values of the flattened convolutions; the three convolutions
    "lenet-relu": Watched("6", ("0", "2", "4")),
    # the adaptive average pooling; the last three convolutions
    "alexnet-3fc": Watched("13", ("6", "8", "10")),
    # the first linear layer, without its ReLU, on which the text is silent; the convolutions
    "cnn-2": Watched("7", ("0", "3")),
    # the second linear layer, likewise; all layers
    "mlp-4": Watched("3", ("1", "3", "5", "7")),
}
"""By name of the network (section 4.1 of the paper)."""


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
    if features is not None:
        known = [name for name, _ in task.model.named_modules() if name]
        require_known(features, known, f"the model has no module {features!r} for data features")
    watched = default_layers(task, x)
    for name in layers:
        require_known(name, watched, f"the model has no layer {name!r} to watch")


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
    heard = _listener(task, params, x, features)
    parts, size, start = [], 2, 0
    while start < len(x):
        parts.append(heard(x[start : start + size]))
        start += size
        size = max(1, min(1024, max_bytes // max(1, parts[-1][0].nbytes)))
    return torch.cat(parts)


def batch_features(
    task: Task, params: Params, x: Tensor, rows: Tensor, features: str | None = None
) -> Tensor:
    """Return the mean over the records of each batch ``[T, d]``; each passes the model whole.

    Where records interact, the features of a record depend on its batch.

    Args:
        task: the model, which stays unchanged.
        params: all trainable parameters by name.
        x: records ``[n, ...]``.
        rows: of each batch ``[T, B]``.
        features: as for ``record_features``.

    Raises:
        InputError: as for ``record_features``.

    >>> from torch import nn
    >>> task = Task(nn.Linear(2, 1))
    >>> x, rows = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[0, 1]])
    >>> batch_features(task, dict(task.model.named_parameters()), x, rows)
    tensor([[1., 2.]])
    """
    heard = _listener(task, params, x, features)
    return torch.stack([heard(x[batch]).mean(0) for batch in rows])


def _listener(
    task: Task, params: Params, x: Tensor, features: str | None
) -> Callable[[Tensor], Tensor]:
    """Return a function from records to their features, in one pass of a private model."""
    last = walk(task, x)[-1].name if features is None else features
    seen: list[Any] = []
    own = private(task, params)  # its hook ends with it
    module = own.model.get_submodule(last)
    if features is None:
        module.register_forward_pre_hook(lambda _, given: seen.append(_first(given)))
    else:
        module.register_forward_hook(lambda _, __, output: seen.append(_first(output)))

    def heard(chunk: Tensor) -> Tensor:
        seen.clear()
        with (
            torch.no_grad(),
            torch.random.fork_rng(enabled=own.model.training),
            explained(f"{type(own.model).__name__} refuses inputs {list(chunk.shape)}"),
        ):
            functional_call(own.model, fresh_buffers(own), (chunk,))
        return _flat(seen, len(chunk), last)

    return heard


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
