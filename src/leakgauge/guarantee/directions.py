"""Finds the direction in which releases show their records most, from releases of a pilot.

The likelihood ratio reads each release along the difference of the expected gradients, the best
direction if the noise is independent and equal in all coordinates. A mechanism may claim that and
leave out some coordinates, or add one number to several.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flatten
from leakgauge.guarantee.mechanism import Mechanism
from leakgauge.guarantee.metrics import COORDINATES, DIFFERENCE, SHARED
from leakgauge.guarantee.release import Hypotheses, ReleaseParts, pilot_releases
from leakgauge.guarantee.statistic import SMALLEST, TINY, LikelihoodRatio
from leakgauge.runs.checkpoint import Checkpoint

PILOT = 64
"""Releases of a pilot."""

FEWEST = 16
"""Smallest number of releases of a pilot; with larger gradients there is none."""

MOST_BYTES = 2**27
"""Memory of a pilot's releases, in bytes."""

RIDGE = 1e-6
"""What is added to the variance of all directions, as a share of their mean."""

CLEARLY = 1.25
"""How many times as far another direction must tell the hypotheses apart to be read.

The directions are those of a noisy pilot, so with independent noise they tell less than the
difference does.
"""

DIRECTIONS = (DIFFERENCE, COORDINATES, SHARED)
"""Directions: the difference; with each coordinate by its noise; where shared noise is least."""


@dataclass(frozen=True, eq=False)
class PilotedRatio(LikelihoodRatio):
    """The projections of ``LikelihoodRatio``, and on the other ``DIRECTIONS``.

    Attributes:
        others: unit directions of each new value ``[v, D]``, in the order of ``DIRECTIONS``.
    """

    others: Sequence[Tensor]
    name: ClassVar[str] = LikelihoodRatio.name

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the projections ``[n, v, 3]``."""
        apart = flatten(released).double() - flatten(expected)[:1].double()
        # No matrix product: its rounding depends on how many rows come at once.
        others = [
            torch.stack([(apart * each).sum(dim=1) for each in one], dim=1) for one in self.others
        ]
        return torch.cat([super().parts(released, expected), torch.stack(others, dim=2)], dim=2)


def piloted(
    hypotheses: Hypotheses,
    mechanism: Mechanism,
    *,
    seed: int,
    checkpoint: Checkpoint | None = None,
) -> PilotedRatio | None:
    """Return the projections for the noise of a pilot under H0; None for too large gradients.

    Args:
        hypotheses: gradients under both hypotheses.
        mechanism: makes the releases.
        seed: seed of the noise.
        checkpoint: keeps the releases of the pilot.
    """
    expected = flatten(hypotheses.expected).double()
    count = min(PILOT, MOST_BYTES // (expected.element_size() * expected.shape[1]))
    if count < FEWEST:
        return None
    released = pilot_releases(
        hypotheses, mechanism, count, seed=seed, max_bytes=MOST_BYTES, checkpoint=checkpoint
    )
    noise = released.to(expected) - expected[:1]
    apart = expected[1:] - expected[:1]
    return PilotedRatio(
        [_unit(one) for one in (_by_coordinates(apart, noise), _by_shared(apart, noise))]
    )


def clearest(parts: ReleaseParts) -> tuple[ReleaseParts, str]:
    """Return the parts along one direction, and its name.

    It is that of the difference, unless another one tells the hypotheses clearly further apart. The
    noise is that of the releases under H0 that choose, so those that are judged have no say.

    Args:
        parts: parts of ``PilotedRatio``.
    """
    spread = parts.chosen[0].std(axis=0)
    reach = np.abs(parts.shifts)
    ratios = (reach / np.maximum(spread, np.maximum(TINY * reach, SMALLEST))).mean(axis=0)
    best = int(ratios.argmax())
    at = best if ratios[best] > CLEARLY * ratios[0] else 0
    one = slice(at, at + 1)
    chosen, judged = (
        (null[..., one], other[..., one]) for null, other in (parts.chosen, parts.judged)
    )
    shifts = parts.shifts[:, one]
    return replace(parts, chosen=chosen, judged=judged, shifts=shifts), DIRECTIONS[at]


def _by_coordinates(apart: Tensor, noise: Tensor) -> Tensor:
    """Return the differences ``[v, D]`` divided by each coordinate's variance."""
    variance = noise.square().mean(dim=0)
    floor = max(TINY * float(variance.max()), SMALLEST)
    return torch.div(apart, variance.clamp(min=floor))


def _by_shared(apart: Tensor, noise: Tensor) -> Tensor:
    """Return the differences ``[v, D]`` times the inverse covariance of the noise, with a ridge.

    With fewer releases than coordinates it is nearly the part without the noise of the pilot.
    """
    count, width = noise.shape
    inner = noise @ noise.T
    ridge = RIDGE * float(inner.trace()) / width
    if ridge == 0:
        return apart
    system = inner + ridge * torch.eye(count, dtype=inner.dtype, device=inner.device)
    shared: Tensor = torch.linalg.solve(system, noise @ apart.T)
    removed: Tensor = shared.T @ noise
    return apart - removed


def _unit(directions: Tensor) -> Tensor:
    """Return each row divided by its length; 0 stays 0."""
    largest = directions.abs().amax(dim=1, keepdim=True).clamp(min=SMALLEST)
    scaled = directions / largest  # squares of very large numbers would overflow
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=SMALLEST)
    return torch.div(scaled, lengths)
