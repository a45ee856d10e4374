"""Finds the direction in which releases show their records most, from releases of a pilot.

The likelihood ratio reads each release along the difference of the expected gradients, the best
direction if the noise is independent and equal in all coordinates. A mechanism may claim that and
leave out some coordinates, or add one number to several.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flatten
from leakgauge.guarantee.mechanism import Mechanism
from leakgauge.guarantee.metrics import COORDINATES, DIFFERENCE, SHARED
from leakgauge.guarantee.release import Hypotheses, ReleaseParts, pilot_releases
from leakgauge.guarantee.spec import PILOT
from leakgauge.guarantee.statistic import SMALLEST, TINY, LikelihoodRatio
from leakgauge.results.statistics import Floats
from leakgauge.runs.checkpoint import Checkpoint

FEWEST = 16
"""Smallest number of releases of a pilot; with larger gradients there is none."""

MOST_BYTES = 2**27
"""Memory of a pilot's releases, in bytes."""

RIDGE = 1e-6
"""What is added to the variance of all directions, as a share of their mean."""

CLEARLY = 2.0
"""By how many standard errors another direction must tell the hypotheses further apart to be read.

With independent noise the directions of a noisy pilot tell less than the difference does.
"""

DIRECTIONS = (DIFFERENCE, COORDINATES, SHARED, SHARED, SHARED)
"""Directions: the difference; with each coordinate by its noise; where noise is least that the
pilot shows as shared, that each row of a leaf shares, and that each column shares."""


@dataclass(frozen=True, eq=False)
class PilotedRatio(LikelihoodRatio):
    """The projections of ``LikelihoodRatio``, and those on the other ``DIRECTIONS``.

    Attributes:
        others: unit directions of each new value ``[v, D]``: ``DIRECTIONS`` from the second on.
    """

    others: Sequence[Tensor]

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the projections ``[n, v, 5]``."""
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
    # Noise is what differs between releases; what all of them add is none.
    noise = released.to(expected)
    noise -= noise.mean(dim=0)
    apart = {name: (leaf[1:] - leaf[:1]).double() for name, leaf in hypotheses.expected.items()}
    flat = flatten(apart)
    return PilotedRatio(
        [
            _unit(one)
            for one in (
                _by_coordinates(flat, noise),
                _by_shared(flat, noise),
                flatten({name: _within(leaf, columns=False) for name, leaf in apart.items()}),
                flatten({name: _within(leaf, columns=True) for name, leaf in apart.items()}),
            )
        ]
    )


def clearest(parts: ReleaseParts) -> tuple[ReleaseParts, str]:
    """Return the parts along one direction, and its name.

    It is that of the difference, unless another one tells the hypotheses clearly further apart, as
    the releases that choose show. Those that are evaluated have no influence on it.

    Args:
        parts: parts of ``PilotedRatio``.
    """
    told = _told_apart(parts)
    best, error = int(told.argmax()), np.sqrt(2 / len(parts.chosen[1]))
    at = best if told[best] > told[0] + CLEARLY * error else 0
    one = slice(at, at + 1)
    chosen, judged = (
        (null[..., one], other[..., one]) for null, other in (parts.chosen, parts.judged)
    )
    shifts = parts.shifts[:, one]
    return replace(parts, chosen=chosen, judged=judged, shifts=shifts), DIRECTIONS[at]


def _told_apart(parts: ReleaseParts) -> Floats:
    """Return how far each part moves between the hypotheses ``[k]``, over the spread of its noise.

    A mechanism may move its releases less than it claims, so a shift counts as far as the releases
    have it.
    """
    null, other = parts.chosen
    told = np.zeros(parts.shifts.shape[1])
    for at, shift in enumerate(parts.shifts):
        own = other[parts.values[0] == at + 1, at]
        if len(own):
            reach, spread = np.abs(shift), null[:, at].std(axis=0)
            moved = (own.mean(axis=0) - null[:, at].mean(axis=0)) * np.sign(shift)
            floor = np.maximum(TINY * reach, SMALLEST)
            told += len(own) * np.clip(moved, -reach, reach) / np.maximum(spread, floor)
    return np.abs(told) / len(other)


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


def _within(apart: Tensor, *, columns: bool) -> Tensor:
    """Return the differences of a leaf ``[v, *p]`` without the mean of each row, or column.

    A mechanism that draws one number for each row adds nothing there. A leaf of one dimension is
    one column; it has no rows and is left out.
    """
    axes = list(range(1, apart.dim()))
    over = axes[:1] if columns else axes[1:]
    return apart - apart.mean(dim=over, keepdim=True) if over else torch.zeros_like(apart)


def _unit(directions: Tensor) -> Tensor:
    """Return each row divided by its length; 0 stays 0."""
    largest = directions.abs().amax(dim=1, keepdim=True).clamp(min=SMALLEST)
    scaled = directions / largest  # squares of very large numbers would overflow
    lengths = torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp(min=SMALLEST)
    return torch.div(scaled, lengths)
