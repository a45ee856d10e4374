"""Transforms that need nothing but the gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count
from leakgauge.core.types import Grads
from leakgauge.defenses.transform import alike, drawn, over_rows, scaled
from leakgauge.gradients.flattening import norms


@dataclass(frozen=True)
class Prune:
    """Sets all but the largest coordinates of each parameter to 0.

    Each parameter of each gradient is pruned by itself, as Lin et al. do, to whom the paper
    refers; it does not say so itself. At least one coordinate stays; of equal ones, just as many
    as fit. A static forest is then stopped, as the paper finds; where the coordinates of all
    parameters compete, its success hangs on the seed.

    Args:
        rate: the share that is set to 0, in [0, 1).
        whole: let the coordinates of all parameters compete, so that one with small gradients
            may vanish altogether.

    References:
        Li et al., CCS 2024, section 6.1 (rate 0.99); Lin et al., Deep Gradient Compression,
        ICLR 2018, algorithm 1.

    >>> grads = {"w": torch.tensor([[3.0, -1.0]]), "b": torch.tensor([[-0.5, 0.0]])}
    >>> Prune(0.5)(grads, [])
    {'w': tensor([[3., 0.]]), 'b': tensor([[-0.5000,  0.0000]])}
    >>> Prune(0.5, whole=True)(grads, [])
    {'w': tensor([[ 3., -1.]]), 'b': tensor([[0., 0.]])}
    """

    rate: float = 0.99
    whole: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.rate < 1, f"pruning rate is {self.rate:g}; expected 0 <= rate < 1")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Prune each gradient."""
        if self.whole:
            return over_rows(grads, self._flat)
        return {
            name: over_rows({name: leaf}, self._flat)[name] if leaf[:1].numel() else leaf.clone()
            for name, leaf in grads.items()
        }

    def _flat(self, flat: Tensor, _: slice) -> Tensor:
        kept = max(1, round((1 - self.rate) * flat.shape[1]))
        index = flat.abs().topk(kept, dim=1, sorted=False).indices
        return torch.zeros_like(flat).scatter_(1, index, flat.gather(1, index))


@dataclass(frozen=True)
class Sign:
    """Each coordinate's sign: -1, 0 or 1.

    References:
        Bernstein et al., signSGD, ICML 2018; Li et al., CCS 2024, section 6.1.

    >>> Sign()({"w": torch.tensor([[0.3, -2.0, 0.0]])}, [])
    {'w': tensor([[ 1., -1.,  0.]])}
    """

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Take the signs."""
        return {name: leaf.sign() for name, leaf in grads.items()}


@dataclass(frozen=True)
class ClipNorm:
    """Scales a gradient down to an l2 norm of at most ``l2``, over all leaves together.

    References:
        Abadi et al., Deep learning with differential privacy, CCS 2016, algorithm 1.

    >>> ClipNorm(1.0)({"w": torch.tensor([[3.0], [0.3]]), "b": torch.tensor([[4.0], [0.4]])}, [])
    {'w': tensor([[0.6000],
            [0.3000]]), 'b': tensor([[0.8000],
            [0.4000]])}
    """

    l2: float

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.l2) and self.l2 > 0,
            f"clipping norm is {self.l2:g}; expected a finite number above 0",
        )

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Clip each gradient."""
        return scaled(grads, (self.l2 / norms(grads)).clamp(max=1.0))


@dataclass(frozen=True)
class GaussianNoise:
    """Adds independent noise from N(0, std^2) to every coordinate.

    >>> rngs = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
    >>> noisy = GaussianNoise(0.1)({"w": torch.zeros(2, 10_000)}, rngs)["w"]
    >>> [round(float(row.std()), 2) for row in noisy]
    [0.1, 0.1]
    """

    std: float

    def __post_init__(self) -> None:
        require(
            math.isfinite(self.std) and self.std >= 0,
            f"noise has standard deviation {self.std:g}; expected a finite number from 0 on",
        )

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Add noise to each gradient; none is drawn where ``std`` is 0."""
        if self.std == 0:
            return dict(grads)
        noise = drawn(grads, rngs, _normal)
        return {name: noise[name].mul_(self.std).add_(leaf) for name, leaf in grads.items()}


@dataclass(frozen=True)
class StochasticQuantise:
    """Rounds each coordinate at random to one of a few levels, right on average.

    A coordinate's size, in units of its gradient's l2 norm over all leaves, lies between two of
    the levels 0, 1/levels, ..., 1. It becomes the upper one with the probability that makes the
    expectation exact, else the lower one: E[q(g)] = g. Each gradient is one bucket.

    Args:
        levels: above 0; with 1, a coordinate becomes 0 or plus or minus the norm.

    References:
        Alistarh et al., QSGD, NeurIPS 2017, section 3.1.

    >>> StochasticQuantise(2)({"w": torch.tensor([[0.0, -7.0]])}, [torch.Generator()])
    {'w': tensor([[ 0., -7.]])}
    """

    levels: int

    def __post_init__(self) -> None:
        require_count(self.levels, "number of quantisation levels")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Round each gradient."""
        norm = norms(grads)
        step = norm / self.levels
        per_step = torch.where(norm > 0, 1 / step, 0.0)
        uniform = drawn(grads, rngs, _uniform)
        return {
            name: self._rounded(leaf * alike(per_step, leaf), uniform[name]).mul_(alike(step, leaf))
            for name, leaf in grads.items()
        }

    def _rounded(self, value: Tensor, uniform: Tensor) -> Tensor:
        """``value``, in steps, up or down to a whole number."""
        size = value.abs().clamp(max=self.levels)
        lower = size.floor()
        return (lower + (uniform < size - lower)).mul_(value.sign())


def _normal(row: Tensor, rng: torch.Generator) -> Tensor:
    return torch.randn(row.shape, generator=rng, dtype=row.dtype, device=rng.device)


def _uniform(row: Tensor, rng: torch.Generator) -> Tensor:
    return torch.rand(row.shape, generator=rng, dtype=row.dtype, device=rng.device)
