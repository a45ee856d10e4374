"""The cheap measure of a step: the alignment of the records' gradients with their inputs.

It compares two kernels on the records of one batch: inner products of their gradients, and inner
products of the records themselves. It trains no network, and one batch is enough.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.tokens.monitor.defending import DefendedGradients
from leakgauge.tokens.monitor.passes import raw
from leakgauge.tokens.sketch import Sketch

FEWEST = 4
"""Smallest number of records for the unbiased estimate."""


def gradient_kernel(factors: Iterable[Factors]) -> Tensor:
    """Return the inner products of the records' gradients over all layers ``[n, n]``.

    They are exact; linear layers need no gradient.

    Args:
        factors: factors of each watched layer, for the same n records.

    Raises:
        InputError: ``factors`` is empty.
    """
    kernels = [one.gram() for one in factors]
    require(len(kernels) > 0, "there are no layers; name one to watch")
    return torch.stack(kernels).sum(0)


def linear_kernel(x: Tensor) -> Tensor:
    """Return the inner products of records ``[n, n]``.

    Args:
        x: records ``[n, ...]``, converted to floating point.
    """
    flat = x.reshape(len(x), -1)
    flat = flat if flat.is_floating_point() else flat.float()
    return flat @ flat.T


def alignment(k: Tensor, other: Tensor) -> float:
    """Return the debiased centred kernel alignment of two kernels on the same records.

    It is 1 for kernels equal up to scale and shift, and about 0 (above or below) for independent
    values. It is not an information: only its order over the training has a meaning.

    Args:
        k: kernel ``[n, n]``.
        other: kernel ``[n, n]``.

    Returns:
        A number near 0 to 1; 0 for a constant kernel.

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
    """Return whether a kernel is constant up to rounding."""
    return float(centred.norm()) <= 10 * torch.finfo(kernel.dtype).eps * float(kernel.norm())


def _centred(kernel: Tensor) -> Tensor:
    """Return the U-centred kernel; its inner products are unbiased up to a factor."""
    n = len(kernel)
    kernel = kernel - torch.diag(kernel.diagonal())
    sums = kernel.sum(0)
    made = kernel - (sums[:, None] + sums[None]) / (n - 2) + sums.sum() / ((n - 1) * (n - 2))
    return made - torch.diag(made.diagonal())


WIDTH = 8192
"""Largest number of kept values of each parameter's defended gradient."""


def cheap_measure(
    x: Tensor,
    found: Sequence[Factors],
    defending: DefendedGradients | None = None,
    *,
    step: int = 0,
    seed: int = 0,
) -> float | None:
    """Return the alignment of the records' gradients with their inputs; None if not finite.

    Args:
        x: inputs of the records ``[n, ...]``.
        found: gradients of the same records, by layer.
        defending: defense of each record's gradient.
        step: step of the training; the defense's noise depends on it.
        seed: seed of the sketches.
    """
    with torch.no_grad():
        if defending is None:
            of_gradients = gradient_kernel(found)
        else:
            rows = _defended(found, defending, len(x), step, seed)
            of_gradients = rows @ rows.T
        if not of_gradients.isfinite().all():
            return None
        return alignment(of_gradients, linear_kernel(raw(x).to(of_gradients.device)))


def _defended(
    found: Sequence[Factors], defending: DefendedGradients, count: int, step: int, seed: int
) -> Tensor:
    """Return sketches of the records' defended gradients ``[n, d]``."""
    sketches = [
        (name, Sketch(leaf.numel(), width=WIDTH, seed=derive(seed, "cheap", name)))
        for one in found
        for name, leaf in one.rows(slice(0, 1)).gradient().items()
    ]
    kept = []
    for grads in defending.records(found, count, step):
        leaves = [sketch(flat_leaf(grads[name])) for name, sketch in sketches]
        kept.append(torch.cat(leaves, dim=1))
    return torch.cat(kept)
