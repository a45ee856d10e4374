"""Transforms that need nothing but the gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.transform import (
    Identity,
    Objective,
    Transform,
    alike,
    drawn,
    over_rows,
    scaled,
)
from leakgauge.gradients.flattening import norms


@dataclass(frozen=True)
class Prune(Transform):
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

    def adapt(self, objective: Objective) -> "Pruned":
        """Compare what was sent, and bound the rest by it."""
        return Pruned(objective, self.whole)


@dataclass(frozen=True)
class Pruned:
    """Compares what pruning sends, and asks of the rest only that it is too small to be sent.

    The smallest coordinate that was sent of a parameter is its threshold. Where 0 was sent, the
    guess counts only by what it has above the threshold. That is measured in units of the
    gradient's size, so a guess of another size is judged like one of the right size. A static
    attack takes the zeros for wanted.

    Attributes:
        objective: compares the update with what is left of the guess.
        whole: all parameters have one threshold, their smallest: as ``Prune.whole``.

    >>> sent = {"w": torch.tensor([[3.0, 2.0, 0.0]])}
    >>> guess = {"w": torch.tensor([[3.0, 2.0, 1.5]])}
    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> squared(guess, sent), Pruned(squared)(guess, sent)
    (tensor([2.2500]), tensor([0.]))
    """

    objective: Objective
    whole: bool = False

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        kept = {name: found[name] * (sent != 0) for name, sent in wanted.items()}
        size, full = norms({name: leaf.detach() for name, leaf in kept.items()}), norms(wanted)
        scale = size / torch.where(full > 0, full, 1.0)
        left = {
            name: kept[name] + _excess(found[name] - kept[name], limit * scale)
            for name, limit in self._limits(wanted).items()
        }
        return self.objective(left, wanted)

    def _limits(self, wanted: Grads) -> dict[str, Tensor]:
        """The smallest sizes ``[N]`` that were sent; where nothing was, beyond any other."""

        def smallest(sent: Tensor) -> Tensor:
            sizes = torch.where(sent != 0, sent.abs(), torch.finfo(sent.dtype).max)
            return sizes.reshape(len(sent), -1).amin(dim=1)

        sizes = {name: smallest(sent) for name, sent in wanted.items()}
        if not self.whole:
            return sizes
        return dict.fromkeys(sizes, torch.stack(list(sizes.values())).amin(dim=0))


def _excess(leaf: Tensor, limit: Tensor) -> Tensor:
    """What goes beyond ``limit [N]``, with its sign."""
    bound = alike(limit, leaf)
    return leaf - torch.minimum(torch.maximum(leaf, -bound), bound)


@dataclass(frozen=True)
class Sign(Transform):
    """Each coordinate's sign: -1, 0 or 1.

    References:
        Bernstein et al., signSGD, ICML 2018; Li et al., CCS 2024, section 6.1.

    >>> Sign()({"w": torch.tensor([[0.3, -2.0, 0.0]])}, [])
    {'w': tensor([[ 1., -1.,  0.]])}
    """

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Take the signs."""
        return {name: leaf.sign() for name, leaf in grads.items()}

    def adapt(self, objective: Objective) -> "SoftSigns":
        """Compare soft signs."""
        return SoftSigns(objective)


@dataclass(frozen=True)
class SoftSigns:
    """Compares signs with soft signs of the guess's gradient, which have a slope.

    Each coordinate g becomes tanh(g / scale). The scale is ``softness`` times the mean size of the
    guess's coordinates in that parameter, so the size of the gradient does not matter; a
    coordinate well above it and of the right sign is content.

    Attributes:
        objective: compares soft signs with the signs that were sent.
        softness: above 0; towards 0 the function becomes the sign, without a slope. On eight
            training images of CIFAR-10, 0.25 did worse than 0.5, and 1 about as well.

    >>> guess, sent = {"w": torch.tensor([[9.0, -1.0]])}, {"w": torch.tensor([[1.0, -1.0]])}
    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> bool(SoftSigns(squared, 0.1)(guess, sent) < 0.01)
    True
    """

    objective: Objective
    softness: float = 0.5

    def __post_init__(self) -> None:
        require_positive(self.softness, "softness of signs")

    def __call__(self, found: Grads, wanted: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        return self.objective({name: self._soft(found[name]) for name in wanted}, wanted)

    def _soft(self, leaf: Tensor) -> Tensor:
        scale = self.softness * leaf.abs().reshape(len(leaf), -1).mean(dim=1)
        # A parameter without any gradient has no sign: 0, with a finite slope.
        return torch.tanh(leaf / alike(torch.where(scale > 0, scale, 1.0), leaf))


@dataclass(frozen=True)
class ClipNorm(Transform):
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

    @property
    def clip_norm(self) -> float:
        """``l2``."""
        return self.l2


@dataclass(frozen=True)
class GaussianNoise(Transform):
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

    @property
    def keeps_size(self) -> bool:
        """True."""
        return True

    @property
    def noise_variance(self) -> float:
        """``std`` squared."""
        return self.std**2

    def without_noise(self) -> Identity:
        """Nothing else is left."""
        return Identity()

    def adapt(self, objective: Objective) -> Objective:
        """Return ``objective`` itself: the noise is independent of the gradient."""
        return objective


@dataclass(frozen=True)
class StochasticQuantise(Transform):
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
