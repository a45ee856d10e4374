"""Clipping: scale each record's gradient down to a largest norm."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from leakgauge.core.checks import require
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.transform import Objective, Transform
from leakgauge.gradients.flattening import alike, norms


@dataclass(frozen=True)
class Clip(DefenseSettings):
    """Clip each record's gradient, as in DP-SGD, without noise; it gives no guarantee.

    Args:
        l2: largest l2 norm of a record's gradient.
    """

    word: ClassVar[str] = "clip"
    l2: float

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, per_example=ClipNorm(self.l2))


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

    def adapt(self, objective: Objective) -> None:
        """Return None: it changes the size alone, which the search then ignores."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the clipped gradients."""
        factors = (self.l2 / norms(grads)).clamp(max=1.0)
        return {name: leaf * alike(factors, leaf) for name, leaf in grads.items()}

    @property
    def clip_norm(self) -> float:
        """The clipping norm ``l2``."""
        return self.l2
