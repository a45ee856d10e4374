"""The sparse vector technique on an update, as NVFlare's filter does it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.transform import Objective, Transform
from leakgauge.gradients.flattening import flatten

PASSES = 10_000
"""Largest number of passes over the coordinates; only chance passes a threshold far above all."""


@dataclass(frozen=True)
class SVT(DefenseSettings):
    """Send a share of the coordinates, drawn among those that pass a noisy threshold, with noise.

    Args:
        fraction: share of the coordinates to send.
        epsilon: epsilon of the choice of coordinates.
        noise: epsilon of each coordinate that is sent (NVFlare's ``noise_var``).
        gamma: largest size of a coordinate.
        tau: threshold of a coordinate's size.

    References:
        Li et al., Privacy-preserving federated brain tumour segmentation, MLMI 2019; Lyu, Su and
        Li, Understanding the sparse vector technique, VLDB 2017.
    """

    word: ClassVar[str] = "svt"
    fraction: float = 0.1
    epsilon: float = 0.1
    noise: float = 0.1
    gamma: float = 1e-5
    tau: float = 1e-6

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        sparse = SparseVector(self.fraction, self.epsilon, self.noise, self.gamma, self.tau)
        return Defense(self.name, update=sparse)


@dataclass(frozen=True)
class SparseVector(Transform):
    """Sends coordinates that pass a noisy threshold, clamped and with Laplace noise; others are 0.

    With c coordinates to send, epsilon is shared 1 : (2c)^(2/3) between the noise of the threshold
    and that of the comparisons. Coordinates are compared in passes until c have passed; then c are
    drawn among them with replacement. A parameter that is a single number takes part and passes
    unchanged, as NVFlare lets it.
    """

    fraction: float = 0.1
    epsilon: float = 0.1
    noise: float = 0.1
    gamma: float = 1e-5
    tau: float = 1e-6

    def __post_init__(self) -> None:
        require(
            0 < self.fraction <= 1,
            f"fraction of svt is {self.fraction:g}; expected a number above 0, at most 1",
        )
        for name in ("epsilon", "noise", "gamma"):
            require_positive(getattr(self, name), f"{name} of svt")
        require(math.isfinite(self.tau), f"tau of svt is {self.tau}; expected a number")

    def adapt(self, objective: Objective) -> None:
        """Return None: comparing the coordinates that were sent alone gains nothing."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the sent part of each gradient."""
        rows = [self._row(row, rng) for row, rng in zip(flatten(grads), rngs, strict=True)]
        if not rows:
            return {name: leaf.clone() for name, leaf in grads.items()}
        parts = torch.split(torch.stack(rows), [one[0].numel() for one in grads.values()], dim=1)
        return {
            name: leaf.clone() if leaf.dim() == 1 else part.reshape(leaf.shape)
            for (name, leaf), part in zip(grads.items(), parts, strict=True)
        }

    def centre(self, grads: Grads) -> Grads:
        """Return what the noise of coordinates that are sent lies around: all of them, clamped."""
        return {
            name: leaf.clone() if leaf.dim() == 1 else leaf.clamp(-self.gamma, self.gamma)
            for name, leaf in grads.items()
        }

    def _row(self, row: Tensor, rng: torch.Generator) -> Tensor:
        total = len(row)
        count = min(math.ceil(total * self.fraction), total)
        share = self.epsilon / (1 + (2 * count) ** (2 / 3))
        small = row.double().clamp(-self.gamma, self.gamma)
        threshold = self.tau + float(laplace(1, self.gamma / share, rng))
        accepted = self._accepted(small.abs(), threshold, count, self.epsilon - share, rng)
        places = accepted.nonzero().flatten()
        drawn = torch.randint(len(places), (count,), generator=rng, device=rng.device)
        chosen = places[drawn.to(places.device)]
        values = small[chosen] + laplace(count, 2 * self.gamma / self.noise, rng)
        return torch.zeros_like(row).index_copy_(0, chosen, values.to(row.dtype))

    def _accepted(
        self, sizes: Tensor, threshold: float, count: int, epsilon: float, rng: torch.Generator
    ) -> Tensor:
        """Which coordinates pass, at least ``count`` ``[D]``."""
        passed = torch.zeros_like(sizes, dtype=torch.bool)
        for _ in range(PASSES):
            noisy = sizes + laplace(len(sizes), 2 * self.gamma * count / epsilon, rng)
            passed |= noisy >= threshold
            if int(passed.sum()) >= count:
                return passed
        return torch.ones_like(passed)


def laplace(count: int, scale: float, rng: torch.Generator) -> Tensor:
    """Return Laplace noise ``[count]`` around 0, float64, with density exp(-|x| / scale).

    >>> noise = laplace(100_000, 2.0, torch.Generator().manual_seed(0))
    >>> round(float(noise.abs().mean()), 1)
    2.0
    """
    uniform = torch.rand(count, generator=rng, dtype=torch.float64, device=rng.device) - 0.5
    away = (1 - 2 * uniform.abs()).clamp(min=torch.finfo(torch.float64).tiny)
    return -scale * uniform.sign() * away.log()
