"""Gaussian noise on the update."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.layers import on_layers
from leakgauge.defenses.transform import Identity, Objective, Transform, drawn


@dataclass(frozen=True)
class Noise(DefenseSettings):
    """Add noise to the update without clipping; it gives no guarantee.

    Args:
        std: standard deviation of the noise on each coordinate.
        layers: changed layers, such as ``first+3``, see ``Layers``; None for all.
    """

    word: ClassVar[str] = "noise"
    std: float
    _: KW_ONLY
    layers: str | None = None

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=on_layers(GaussianNoise(self.std), self.layers))


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
        """Return the gradients with noise; without drawing any where ``std`` is 0."""
        if self.std == 0:
            return dict(grads)
        noise = drawn(grads, rngs, _normal)
        return {name: noise[name].mul_(self.std).add_(leaf) for name, leaf in grads.items()}

    keeps_size = True  # Noise is not counted.

    @property
    def noise_variance(self) -> float:
        """The square of ``std``."""
        return self.std**2

    def without_noise(self) -> Identity:
        """Return the identity."""
        return Identity()

    def adapt(self, objective: Objective) -> Objective:
        """Return ``objective`` itself: the noise is independent of the gradient."""
        return objective


def _normal(row: Tensor, rng: torch.Generator) -> Tensor:
    return torch.randn(row.shape, generator=rng, dtype=row.dtype, device=rng.device)
