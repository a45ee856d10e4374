"""The precision that numbers have, and the tolerances that follow from it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

ROUNDINGS = 8
"""Number of roundings that a relative tolerance allows for: those of a few layers' operations."""

EVIDENCE = 32
"""Smallest number of different values that show a coarser precision than that of their type."""

_COARSE = (torch.bfloat16, torch.float16)


def precision_of(leaves: Iterable[Tensor]) -> torch.dtype:
    """Return the coarsest type that holds all the numbers, at most as fine as their own.

    A gradient of bfloat16 that was cast to float32 keeps the precision of bfloat16.

    >>> values = torch.randn(100)
    >>> precision_of([values]), precision_of([values.bfloat16().float()])
    (torch.float32, torch.bfloat16)
    """
    given = [one for one in leaves if one.is_floating_point()]
    finest = min((one.dtype for one in given), key=lambda one: torch.finfo(one).eps)
    if finest in _COARSE or not _is_evidence(given):
        return finest
    for dtype in _COARSE:
        if all(torch.equal(one.to(dtype).to(one.dtype), one) for one in given):
            return dtype
    return finest


def relative_tolerance(dtype: torch.dtype, least: float) -> float:
    """Return a relative difference of rounding to a type, and no less than ``least``.

    >>> relative_tolerance(torch.float32, 1e-3), relative_tolerance(torch.bfloat16, 1e-3)
    (0.001, 0.0625)
    """
    return max(least, ROUNDINGS * torch.finfo(dtype).eps)


def rounding_norm(matrix: Tensor, dtype: torch.dtype) -> float:
    """Return about how large a singular value is that rounding to a type adds to a matrix.

    Rounding moves an entry by a standard deviation of eps / sqrt(12) of its size. Independent
    entries of these deviations have a norm of about the largest norm of a row plus that of a
    column.

    References:
        Latala, Some estimates of norms of random matrices, 2005.
    """
    deviations = matrix.double().abs() * torch.finfo(dtype).eps / 12**0.5
    return float(deviations.norm(dim=0).max() + deviations.norm(dim=1).max())


def spacing(values: Tensor, eps: float) -> Tensor:
    """Return the spacing of a number format of an ``eps`` at each value, float64; 0 at 0.

    >>> spacing(torch.tensor([0.0, 1.0, 3.0]), 0.5).tolist()
    [0.0, 0.5, 1.0]
    """
    _, exponent = torch.frexp(values.double())
    return torch.where(values == 0, 0.0, eps / 2 * 2.0 ** exponent.double())


@contextmanager
def full_precision() -> Iterator[None]:
    """Multiply float32 in full inside the block, and restore the settings after it.

    On a GPU torch's convolutions round their factors to TF32, with errors of a thousandth. That
    hides small gradients and differences from an attack, and a certificate would not hold.

    >>> with full_precision():
    ...     torch.backends.cuda.matmul.fp32_precision
    'ieee'
    """
    own: list[Any] = [torch.backends.cuda.matmul]
    own += [torch.backends.cudnn.conv, torch.backends.cudnn.rnn]  # type: ignore[attr-defined]
    before = [one.fp32_precision for one in own]
    for one in own:
        one.fp32_precision = "ieee"
    try:
        yield
    finally:
        for one, was in zip(own, before, strict=True):
            one.fp32_precision = was


def is_coarse(dtype: torch.dtype) -> bool:
    """Return whether a type is coarser than float32.

    >>> is_coarse(torch.bfloat16), is_coarse(torch.float32)
    (True, False)
    """
    return torch.finfo(dtype).eps > torch.finfo(torch.float32).eps


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a type.

    >>> name_of(torch.bfloat16)
    'bfloat16'
    """
    return str(dtype).removeprefix("torch.")


def _is_evidence(leaves: list[Tensor]) -> bool:
    """Return whether there are enough different numbers, so that no chance made them coarse."""
    firsts = (one.flatten()[: 64 * EVIDENCE].abs() for one in leaves)
    return any(len(torch.unique(one)) > EVIDENCE for one in firsts)
