"""Percentile privacy: send large coordinates only, and cut these, as NVFlare's filter does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.transform import (
    Objective,
    Transform,
    cut_at,
    over_rows,
    smallest_sent,
)
from leakgauge.gradients.flattening import alike

SOFTNESS = 2.0
"""Size, in units of the percentile, at which a soft sign is three quarters. Four images of CIFAR-10
and an untrained slim net, all coordinates cut, the 50th and the 90th percentile: 27.0 and 20.7 dB;
with 1, 22.5 and 18.9."""


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

    def adapt(self, objective: Objective) -> "LargestCompared":
        """Return the objective that knows what was dropped and what was cut."""
        return LargestCompared(objective, self.percentile)


@dataclass(frozen=True)
class LargestCompared:
    """Compares the coordinates that were sent, and bounds those that were dropped or cut.

    The smallest and the largest size that was sent are the two bounds. The guess is cut at the
    second, as the update was. Where 0 was sent, only the part of the guess above the first counts.
    Where all that was sent was cut, only signs are left: the guess is then measured by the
    percentile of its own sizes, and the signs are softened (``SOFTNESS``). A static attack, by
    contrast, matches zeros and cut values.

    Attributes:
        objective: compares the reduced guess with the update.
        percentile: percentile of the sizes below which coordinates were dropped.

    >>> def squared(guess, sent):
    ...     return (guess["w"] - sent["w"]).square().sum(dim=1)
    >>> sent = LargestOnly(50, 3.0)({"w": torch.tensor([[1.0, -2.0, 5.0]])}, [])
    >>> LargestCompared(squared, 50)({"w": torch.tensor([[1.0, -2.0, 5.0]])}, sent)
    tensor([0.])
    >>> LargestCompared(squared, 50)({"w": torch.tensor([[2.5, -2.0, -5.0]])}, sent)
    tensor([36.2500])
    """

    objective: Objective
    percentile: float

    def __call__(self, guess: Grads, sent: Grads) -> Tensor:
        """Return the distance of each row ``[N]``."""
        changed = [name for name, leaf in sent.items() if leaf.dim() > 1]
        if not changed:
            return self.objective(guess, sent)
        most = torch.stack([sent[name].abs().flatten(1).amax(1) for name in changed]).amax(0)
        least = torch.stack([smallest_sent(sent[name]) for name in changed]).amin(0)
        found = {name: _within(guess[name], sent[name], least, most) for name in changed}
        signs = least >= most
        if bool(signs.any()):
            flat = torch.cat([guess[name].detach().abs().flatten(1) for name in changed], dim=1)
            unit = percentile_of(flat, self.percentile)
            unit = torch.where(unit > 0, unit, 1.0)
            for name, leaf in found.items():
                soft = _soft_signs(guess[name], sent[name], unit, most)
                found[name] = torch.where(alike(signs, leaf), soft, leaf)
        return self.objective({name: found.get(name, guess[name]) for name in sent}, sent)


def _within(guess: Tensor, sent: Tensor, least: Tensor, most: Tensor) -> Tensor:
    """Return the part of each coordinate that the update shows; bounds are ``[N]``."""
    return torch.where(sent != 0, cut_at(guess, most), guess - cut_at(guess, least))


def _soft_signs(guess: Tensor, sent: Tensor, unit: Tensor, size: Tensor) -> Tensor:
    """Return soft signs times the size that was sent; below the unit, dropped ones are 0."""
    each = guess / alike(unit, sent)
    over = torch.tanh(each - each.clamp(-1, 1))
    return alike(size, sent) * torch.where(sent != 0, torch.tanh(each / SOFTNESS), over)


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
