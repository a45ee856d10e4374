"""Percentile privacy: send large coordinates only, and cut these, as NVFlare's filter does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.transform import Transform, over_rows


@dataclass(frozen=True)
class PercentilePrivacy(DefenseSettings):
    """Set coordinates below a percentile of the update's sizes to 0, and cut the others.

    Args:
        percentile: percentile of the sizes of all coordinates, from 0 to 100.
        gamma: largest size of a coordinate, for one step.
        steps: local steps; the update is divided by them before, and multiplied after.

    References:
        Shokri and Shmatikov, Privacy-preserving deep learning, CCS 2015.
    """

    word: ClassVar[str] = "percentile-privacy"
    percentile: float = 10
    gamma: float = 0.01
    steps: int = 1

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=LargestOnly(self.percentile, self.gamma, self.steps))


@dataclass(frozen=True)
class LargestOnly(Transform):
    """Sets coordinates whose size is below a percentile to 0, and clamps the others.

    A parameter that is a single number passes unchanged, as in NVFlare.

    >>> LargestOnly(50, 3.0)({"w": torch.tensor([[1.0, -2.0, 5.0]])}, [])
    {'w': tensor([[ 0., -2.,  3.]])}
    """

    percentile: float = 10
    gamma: float = 0.01
    steps: int = 1

    def __post_init__(self) -> None:
        require(
            0 <= self.percentile <= 100,
            f"percentile is {self.percentile:g}; expected a number from 0 to 100",
        )
        require_positive(self.gamma, "gamma of percentile-privacy")
        require_count(self.steps, "steps of percentile-privacy")

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the changed gradients."""
        sent = over_rows(grads, self._flat)
        return {
            name: grads[name].clone() if grads[name].dim() == 1 else leaf
            for name, leaf in sent.items()
        }

    def _flat(self, flat: Tensor, _: slice) -> Tensor:
        each = flat / self.steps
        cutoff = percentile_of(each.abs(), self.percentile)
        large = torch.where(each.abs() < cutoff[:, None], 0.0, each)
        return large.clamp(-self.gamma, self.gamma) * self.steps


def percentile_of(rows: Tensor, percentile: float) -> Tensor:
    """Return a percentile of each row ``[n, D]``, linear between the two nearest values ``[n]``.

    ``torch.quantile`` takes 16 million values at most.

    >>> percentile_of(torch.tensor([[1.0, 2.0, 4.0]]), 75)
    tensor([3.])
    """
    order = rows.sort(dim=1).values
    place = percentile / 100 * (rows.shape[1] - 1)
    low = int(place)
    high = min(low + 1, rows.shape[1] - 1)
    return order[:, low].lerp(order[:, high], place - low)
