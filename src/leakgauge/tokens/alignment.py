"""The cheap measure: how far the gradients of a batch's records follow the records, untrained.

It compares two kernels on the records of one batch: inner products of their gradients, and inner
products of the records themselves. No network is trained, and one batch is enough.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.gradients.factored.base import Factors

FEWEST = 4
"""Records that the unbiased estimate needs."""


def gradient_kernel(factors: Iterable[Factors]) -> Tensor:
    """Return the inner products of the records' gradients over all layers ``[n, n]``.

    They are exact, and of linear layers computed without a gradient.

    Args:
        factors: of each watched layer, for the same n records.

    Raises:
        InputError: there is no layer.
    """
    kernels = [one.gram() for one in factors]
    require(len(kernels) > 0, "there are no layers; name one to watch")
    return torch.stack(kernels).sum(0)


def linear_kernel(x: Tensor) -> Tensor:
    """Return the inner products of records ``[n, n]``.

    Args:
        x: records ``[n, ...]``; numbers of another type count as numbers.
    """
    flat = x.reshape(len(x), -1)
    flat = flat if flat.is_floating_point() else flat.float()
    return flat @ flat.T


def alignment(k: Tensor, other: Tensor) -> float:
    """Return the debiased centred kernel alignment of two kernels on the same records.

    1 where both are equal up to scale and shift; about 0, above and below, where the records'
    values are independent. It is no information: only its order over the training tells something.

    Args:
        k: kernel ``[n, n]``.
        other: kernel ``[n, n]``.

    Returns:
        A number near 0 to 1; 0 where a kernel does not vary.

    Raises:
        InputError: there are fewer than 4 records, or the shapes differ.

    References:
        Song et al., Feature selection via dependence maximization, JMLR 2012 (the unbiased HSIC);
        Kornblith et al., Similarity of neural network representations revisited, ICML 2019.

    >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    >>> round(alignment(linear_kernel(x), linear_kernel(2 * x + 1)), 4)
    1.0
    """
    require(
        k.shape == other.shape == (len(k), len(k)),
        f"kernels are {list(k.shape)} and {list(other.shape)}; expected both [n, n]",
    )
    require(
        len(k) >= FEWEST,
        f"a batch has {len(k)} records; the cheap measure compares {FEWEST} or more",
    )
    first, second = _centred(k.double()), _centred(other.double())
    if _is_flat(first, k) or _is_flat(second, other):
        return 0.0
    return float((first * second).sum() / (first.norm() * second.norm()))


def _is_flat(centred: Tensor, kernel: Tensor) -> bool:
    """Return whether a kernel varies by no more than the rounding of its numbers."""
    return float(centred.norm()) <= 10 * torch.finfo(kernel.dtype).eps * float(kernel.norm())


def _centred(kernel: Tensor) -> Tensor:
    """Return the U-centred kernel, whose inner products are unbiased up to a factor."""
    n = len(kernel)
    kernel = kernel - torch.diag(kernel.diagonal())
    sums = kernel.sum(0)
    made = kernel - (sums[:, None] + sums[None]) / (n - 2) + sums.sum() / ((n - 1) * (n - 2))
    return made - torch.diag(made.diagonal())
