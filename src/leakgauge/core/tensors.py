"""Checks of tensors that come from a file."""

import torch
from torch import Tensor

from leakgauge.core.checks import require


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
