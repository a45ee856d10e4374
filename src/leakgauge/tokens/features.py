"""Data features: the outputs of a module of the watched model for records."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_known
from leakgauge.core.types import Params, Task
from leakgauge.gradients.gradients import MAX_BYTES
from leakgauge.gradients.probing import explained, fresh_buffers, private
from leakgauge.gradients.walk import walk


@dataclass(frozen=True)
class Watched:
    """Names of the watched parts of a network.

    Attributes:
        features: name of the module that outputs the data features.
        layers: names of the layers with watched gradients.
    """

    features: str
    layers: tuple[str, ...]


WATCHED: Mapping[str, Watched] = {
    # 768 values of the flattened convolutions; the three convolutions
    "lenet-relu": Watched("6", ("0", "2", "4")),
    # the adaptive average pooling; the last three convolutions
    "alexnet-3fc": Watched("13", ("6", "8", "10")),
    # the first linear layer, without its ReLU, which the text does not mention; the convolutions
    "cnn-2": Watched("7", ("0", "3")),
    # the second linear layer, also without its ReLU; all layers
    "mlp-4": Watched("3", ("1", "3", "5", "7")),
}
"""Watched parts by name of the network (section 4.1 of the paper)."""


def default_layers(task: Task, x: Tensor) -> list[str]:
    """Return the names of all layers with parameters, as an attacker sees all of them.

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
        features: name of a module; None for the default.
        layers: names of layers with parameters.

    Raises:
        InputError: a name does not exist; the message names the nearest one.
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
        features: name of the module that outputs them; None takes the input of the last layer.
        max_bytes: memory of the features of a chunk of records.

    Raises:
        InputError: the module does not run, or its output has no axis of records.

    References:
        Privacy Tokens, section 3.2: the outputs of an intermediate layer, which the paper names
        only for its four networks.

    >>> from torch import nn
    >>> task = Task(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    >>> params = dict(task.model.named_parameters())
    >>> list(record_features(task, params, torch.ones(5, 2)).shape)
    [5, 3]
    """
    features_of = _listener(task, params, x, features)
    parts, size, start = [], 2, 0
    while start < len(x):
        parts.append(features_of(x[start : start + size]))
        start += size
        size = max(1, min(1024, max_bytes // max(1, parts[-1][0].nbytes)))
    return torch.cat(parts)


def batch_features(
    task: Task, params: Params, x: Tensor, rows: Tensor, features: str | None = None
) -> Tensor:
    """Return the mean data features of each batch ``[T, d]``, from one pass per batch.

    If records interact, the features of a record depend on its batch.

    Args:
        task: the model, which stays unchanged.
        params: all trainable parameters by name.
        x: records ``[n, ...]``.
        rows: records of each batch ``[T, B]``.
        features: as for ``record_features``.

    Raises:
        InputError: as for ``record_features``.

    >>> from torch import nn
    >>> task = Task(nn.Linear(2, 1))
    >>> x, rows = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([[0, 1]])
    >>> batch_features(task, dict(task.model.named_parameters()), x, rows)
    tensor([[1., 2.]])
    """
    features_of = _listener(task, params, x, features)
    return torch.stack([features_of(x[batch]).mean(0) for batch in rows])


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

    def features_of(chunk: Tensor) -> Tensor:
        with (
            torch.no_grad(),
            torch.random.fork_rng(enabled=own.model.training),
            explained(f"{type(own.model).__name__} refuses inputs {list(chunk.shape)}"),
        ):
            pair = own.paired(chunk)
            seen.clear()
            own.outputs(pair, fresh_buffers(own))
        return _flat(seen, len(pair), last)[: len(chunk)]

    return features_of


def _first(given: Any) -> Any:
    return given[0] if isinstance(given, tuple) else given


def _flat(seen: list[Any], count: int, name: str) -> Tensor:
    where = f"module {name!r}" if name else "the model"
    require(
        len(seen) > 0 and isinstance(seen[-1], Tensor),
        f"{where} does not run, or returns no tensor; name another one for data features",
    )
    value = seen[-1]
    require(
        value.shape[:1] == (count,),
        f"{where} returns {list(value.shape)} for {count} records; expected records on its first "
        "axis; name another one for data features",
    )
    flat: Tensor = value.detach().reshape(count, -1).float()
    return flat
