"""Curious Abandon Honesty: trap weights, each active for few records."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge.core.checks import require_count, require_positive
from leakgauge.core.types import Task
from leakgauge.inversion.methods import IMPRINT
from leakgauge.inversion.servers.reading import own_reading_layer, reading_size, with_reading
from leakgauge.inversion.servers.server import Server, ServerKnowledge, ServerTraits

_STEPS = 40
"""Halvings of the interval of scales."""

_WIDEST = 4.0
"""Largest scale of the positive weights that is tried."""


@dataclass(frozen=True)
class Curious(Server):
    """Gives the first linear layer trap weights: half of them negative, and slightly stronger.

    Few records are active at a unit; one that is active alone is the quotient of the gradients of
    weights and bias. The weights read a record scaled to between 0 and 1 by public bounds. A
    network that begins with another layer gets a reading layer before it; the paper there turns
    convolutions into copies of the image.

    Attributes:
        scale: size of the positive weights, relative to the negative ones; None (ours) chooses it
            on public records, so that one record of an update is active at a unit on average.
        units: units of the reading layer, where the model has none of its own.

    References:
        Boenisch et al., When the Curious Abandon Honesty: Federated Learning Is Not Private,
        EuroS&P 2023, section 5.
    """

    traits: ClassVar[ServerTraits] = ServerTraits(
        does="gives the first linear layer trap weights, at which few records are active",
        method=IMPRINT,
    )
    scale: float | None = None
    units: int = 1000

    def __post_init__(self) -> None:
        require_count(self.units, "units")
        if self.scale is not None:
            require_positive(self.scale, "scale")

    def alter(self, task: Task, known: ServerKnowledge, generator: Generator) -> Task:
        """Return the task with trap weights; arguments and errors as for ``Server``."""
        own = own_reading_layer(task, known.x[0])
        flat = known.x.flatten(1)
        units, width = reading_size(own, known.x, self.units)
        sizes = torch.randn(units, width, generator=generator).abs().to(flat)
        is_negative = torch.rand(units, width, generator=generator).argsort(dim=1) < width // 2
        is_negative = is_negative.to(flat.device)
        negative, positive = sizes * is_negative, sizes * ~is_negative
        low, high = (one.expand(known.x.shape[1:]).flatten() for one in (known.low, known.high))
        width_of = (high - low).clamp(min=torch.finfo(flat.dtype).tiny)
        used = (high > low).to(flat)
        scaled = (flat - low) / width_of * used
        scale = self.scale or _scale(scaled @ positive.T, scaled @ negative.T, 1 / known.records)
        weight = (scale * positive - negative) * used / torch.where(used > 0, width_of, 1.0)
        bias = -(weight @ (low * used))
        return with_reading(task, own, known.x, weight, bias, generator)


def _scale(positive: Tensor, negative: Tensor, share: float) -> float:
    """Return the scale at which this share of records is active at a unit.

    Args:
        positive: sums of positive weights and values ``[n, units]``.
        negative: those of negative weights, as numbers above 0.
        share: share of records, above 0 and at most 1.
    """
    low, high = 0.0, _WIDEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        active = float((middle * positive > negative).float().mean())
        low, high = (middle, high) if active < share else (low, middle)
    return high
