"""What the records of a batch look like to a measure: raw inputs and data features."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor


def first_tensor(given: Any) -> Tensor | None:
    """Return the first tensor with an axis of records in arguments, lists and mappings.

    >>> first_tensor(((None, {"x": torch.zeros(2, 3)}), {"y": torch.zeros(2)})).shape
    torch.Size([2, 3])
    """
    if isinstance(given, Tensor):
        return given if given.dim() > 0 else None
    if isinstance(given, Mapping):
        given = given.values()
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return None
    return next((found for one in given if (found := first_tensor(one)) is not None), None)


def raw(x: Tensor) -> Tensor:
    """Return the inputs of records as numbers ``[n, d]``.

    Words (whole numbers) are no quantities: a record is then how often it holds each word.

    Args:
        x: ``[n, ...]``.

    >>> raw(torch.tensor([[5, 5], [7, 5]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    x = x.detach().reshape(len(x), -1)
    if x.is_floating_point() or len(x) == 0:
        return x.float()
    _, place = torch.unique(x, return_inverse=True)
    counts = torch.zeros(len(x), int(place.max()) + 1, device=x.device)
    return counts.scatter_add_(1, place, torch.ones_like(place, dtype=counts.dtype))


def feature_sum(values: Tensor) -> Tensor:
    """Return the sum over records of data features ``[d]``, in single precision on their device.

    Args:
        values: ``[n, d]``; ``[n, t, d]``, of which each record gives the mean over t positions; or
            ``[n, ...]``, flattened.
    """
    values = values.detach()
    if not values.is_floating_point():
        values = values.float()
    if values.dim() == 3:
        values = values.mean(1)
    return values.reshape(len(values), -1).sum(0).float()
