"""Quantisation: round each coordinate of an update at random to one of a few levels."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from leakgauge.core.checks import require_count
from leakgauge.core.types import Grads
from leakgauge.defenses.defense import Defense, DefenseSettings
from leakgauge.defenses.layers import on_layers
from leakgauge.defenses.transform import Objective, Transform, drawn
from leakgauge.gradients.flattening import alike, norms


@dataclass(frozen=True)
class Quantise(DefenseSettings):
    """Round the update at random to a few levels, without bias; see ``StochasticQuantise``.

    Args:
        levels: number of levels above 0.
        layers: changed layers, such as ``first+3``, in units of their norm; see ``Layers``. None
            for all.
    """

    word: ClassVar[str] = "quantise"
    levels: int
    _: KW_ONLY
    layers: str | None = None

    def build(self, *, batch_size: int) -> Defense:
        """Return the defense; the batch size has no effect."""
        return Defense(self.name, update=on_layers(StochasticQuantise(self.levels), self.layers))


@dataclass(frozen=True)
class StochasticQuantise(Transform):
    """Rounds each coordinate at random to one of a few levels, without bias.

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

    def adapt(self, objective: Objective) -> None:
        """Return None: rounding has no bias, and the likelihood of the levels gains nothing."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        """Return the rounded gradients."""
        norm = norms(grads)
        step = norm / self.levels
        per_step = torch.where(norm > 0, 1 / step, 0.0)
        uniform = drawn(grads, rngs, _uniform)
        return {
            name: self._rounded(leaf * alike(per_step, leaf), uniform[name]).mul_(alike(step, leaf))
            for name, leaf in grads.items()
        }

    def centre(self, grads: Grads) -> Grads:
        """Return the gradients: rounding has no bias."""
        return dict(grads)

    def _rounded(self, value: Tensor, uniform: Tensor) -> Tensor:
        """Return ``value``, in steps, rounded up or down to an integer."""
        size = value.abs().clamp(max=self.levels)
        lower = size.floor()
        return (lower + (uniform < size - lower)).mul_(value.sign())


def _uniform(row: Tensor, rng: torch.Generator) -> Tensor:
    return torch.rand(row.shape, generator=rng, dtype=row.dtype, device=rng.device)
