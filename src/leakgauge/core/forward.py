"""One forward pass of a model, on copies of the records.

Every forward pass of a ``Task`` is made here, by ``Task.outputs``; a test searches for others. So
a model that normalises its records in place changes a copy, never the caller's records.
"""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge.core.losses import REFUSALS

Values = Mapping[str, Tensor]
"""Parameters and buffers by name, in place of the model's own."""

_REFUSALS = (*REFUSALS, UserWarning)

_DROPS: WeakKeyDictionary[nn.Module, dict[torch.Size, bool]] = WeakKeyDictionary()
"""Whether a model drops the axis of a single record, by the shape of the record."""


def forward(model: nn.Module, x: Tensor, values: Values | None = None) -> Any:
    """Return the outputs of a model for copies of records, one entry per record.

    A model that ends in ``squeeze()`` drops the axis of a single record. It then runs on two
    equal records, and the first outputs are returned.

    Args:
        model: the model; it may write its buffers.
        x: records ``[B, ...]``.
        values: parameters and buffers by name, in place of the model's own; where the model
            rebinds one, a dict has the new one.

    >>> class Regression(nn.Linear):
    ...     def forward(self, x):
    ...         return super().forward(x.sub_(1)).squeeze()
    >>> x = torch.ones(1, 3)
    >>> forward(Regression(3, 1), x).shape, x
    (torch.Size([1]), tensor([[1., 1., 1.]]))
    """
    if not drops_axis(model, x):
        return _called(model, x.clone(), values or {})
    own = dict(values or {})
    if model.training:  # Two records would change running statistics in another way.
        _called(model, x.clone(), values or {})
        own = _scratch(model, own)
    return _called(model, torch.cat([x, x]), own)[:1]


def drops_axis(model: nn.Module, x: Tensor) -> bool:
    """Return whether ``x`` is a single record ``[1, ...]`` whose axis the model drops.

    The model is tried out once for each shape of a record; its buffers stay as they are.

    >>> drops_axis(nn.Flatten(0), torch.ones(1, 3)), drops_axis(nn.Flatten(), torch.ones(1, 3))
    (False, False)
    """
    if x.shape[:1] != (1,):
        return False
    known = _DROPS.setdefault(model, {})
    if x.shape not in known:
        try:
            known[x.shape] = _tried(model, x)
        except _REFUSALS:  # The pass itself names the reason.
            return False
    return known[x.shape]


def _tried(model: nn.Module, x: Tensor) -> bool:
    with torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        alone = _called(model, x.clone(), _scratch(model, {}))
        both = _called(model, torch.cat([x, x]), _scratch(model, {}))
    if not (isinstance(alone, Tensor) and isinstance(both, Tensor)):
        return False
    fewer = both.shape[:1] == (2,) and alone.dim() < both.dim()
    return fewer and _squeezed(alone.shape) == _squeezed(both.shape[1:])


def _called(model: nn.Module, x: Tensor, values: Values) -> Any:
    if not values:
        return model(x)
    return functional_call(model, values if isinstance(values, dict) else dict(values), (x,))


def _scratch(model: nn.Module, values: Values) -> dict[str, Tensor]:
    """Return the values with copies of all buffers, so that a pass leaves no trace."""
    own = dict(model.named_buffers())
    return {**values, **{name: values.get(name, value).clone() for name, value in own.items()}}


def _squeezed(shape: torch.Size) -> list[int]:
    return [length for length in shape if length != 1]
