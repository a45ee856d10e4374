"""Checks of tensors: of those that come from a file, and of their numbers."""

from collections.abc import Iterable

import torch
from torch import Tensor

from leakgauge.core.checks import require


def all_finite(leaves: Iterable[Tensor]) -> bool:
    """Return whether no number in the tensors is NaN or infinite.

    The sum alone tells it, at a fifth of the cost, but where finite numbers add up to infinity.

    >>> all_finite([torch.tensor([3e38, 3e38])]), all_finite([torch.tensor([1.0, torch.nan])])
    (True, False)
    """
    return all(bool(leaf.sum().isfinite()) or bool(leaf.isfinite().all()) for leaf in leaves)


def require_plain(value: Tensor, name: str) -> None:
    """Refuse a tensor without values of its own, or of numbers that arithmetic does not take.

    >>> require_plain(torch.zeros(2, device="meta"), "'w'")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: 'w' is on the device meta and has no values; save real weights
    """
    require(
        value.device.type != "meta",
        f"{name} is on the device meta and has no values; save real weights",
    )
    require(
        value.layout == torch.strided, f"{name} is a {value.layout} tensor; save it by to_dense()"
    )
    require(
        not value.is_floating_point() or value.dtype.itemsize > 1,
        f"{name} is {value.dtype}; save it as float32",
    )
