"""The worst record an auditor can craft: argmax of the distance between its two gradients."""

from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require, require_choice, require_count, require_positive
from leakgauge.core.types import Column, Dataset, Params, Task
from leakgauge.gradients import params_of
from leakgauge.guarantee.distance import Distance, Gap, gap_of, require_distance
from leakgauge.guarantee.domain import Domain
from leakgauge.guarantee.pair import Attribute, Pair


@dataclass(frozen=True)
class Craft:
    """How to craft a canary.

    Attributes:
        domain: where the record may lie: anywhere (``"free"``, as the paper seems to); each
            position within the range seen in the data (``"box"``); or a record whose every
            original column has a value that is seen in the data (``"valid"``).
        distance: what is made large: ``"mse"`` or ``"cosine"`` of the gradients (the paper's), or
            ``"clipped"``, the distance after clipping itself. Wherever both gradients are longer
            than the clip, the cosine alone decides, and its ascent gets further in the box.
        restarts: records of the data to start from, for each label.
        steps: of gradient ascent (Adam); not used in ``"valid"``.
        lr: of Adam, in units of the encoded features.
        sweeps: over all columns in the search among values seen in the data; 0 leaves it out of
            ``"free"`` and ``"box"``, where it gives the ascent its starts.
        choices: values of a column to try, at most; evenly taken where more are seen.

    The record with the largest clipped distance of all starts and labels is kept.

    References:
        Li et al., CCS 2024, section 7.
    """

    domain: Domain = "free"
    distance: Distance = "cosine"
    restarts: int = 4
    steps: int = 200
    lr: float = 0.5
    sweeps: int = 2
    choices: int = 32

    def __post_init__(self) -> None:
        require_choice(self.domain, "domain", get_args(Domain))
        require_distance(self.distance)
        for name in ("restarts", "steps", "choices"):
            require_count(getattr(self, name), f"number of {name}")
        require_positive(self.lr, "lr")
        require(self.sweeps >= 0, f"number of sweeps is {self.sweeps}; expected 0 or more")
        require(
            self.sweeps > 0 or self.domain != "valid",
            "a valid record is found by sweeps over its columns; expected 1 sweep or more",
        )


@dataclass(frozen=True, eq=False)
class Canary:
    """A crafted pair.

    Attributes:
        pair: the record.
        distance: ||clip(g_H0) - clip(g_H1)||; ``distance_over_clip`` is its share of the clip,
            from 0 to 2.
        settings: how it was crafted.
    """

    pair: Pair
    distance: float
    distance_over_clip: float
    settings: Craft


def craft(
    task: Task,
    params: Params | None,
    data: Dataset,
    attribute: Attribute,
    settings: Craft = Craft(),
    *,
    clip: float,
    rng: np.random.Generator,
) -> Canary:
    """The record, of all that the domain allows, whose two versions differ most.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name; None takes the model's own.
        data: the private records: where to start, and what is seen in the data.
        attribute: what differs between the versions, as from ``attribute_of``.
        settings: the domain and the search.
        clip: of the mechanism that is audited.
        rng: draws the starts and the order of columns.

    Raises:
        InputError: fewer records than restarts, or a model whose gradients cannot be vectorised.
    """
    require(
        settings.restarts <= len(data),
        f"{settings.restarts} restarts need as many records; there are {len(data)}",
    )
    params = params_of(task.model) if params is None else params
    gap = gap_of(task, params, attribute, data.x[:2], data.y[:2], clip=clip)
    rows = torch.from_numpy(rng.permutation(len(data))[: settings.restarts])
    labels = torch.unique(data.y)
    x = data.x[rows.to(data.x.device)].repeat(len(labels), 1)
    y = labels.repeat_interleave(settings.restarts)
    if settings.sweeps:
        blocks = _blocks(data, attribute.column, settings.choices)
        for one in range(len(x)):
            x[one] = _searched(gap, x[one], y[one], blocks, settings, rng)
    if settings.domain != "valid":
        x = _ascended(gap, x, y, data, settings)
    with torch.no_grad():
        # A start that ran off to infinity has no distance.
        distances = gap.measure(x, y, "clipped").nan_to_num(nan=0.0)
    best = int(distances.argmax())
    pair = Pair(x[best].clone(), y[best], attribute, origin=f"crafted-{settings.domain}")
    found = float(distances[best])
    return Canary(pair, found, found / clip, settings)


Block = tuple[Column, Tensor]
"""A column and the positions ``[k, stop - start]`` of the values to try."""


def _blocks(data: Dataset, fixed: Column, choices: int) -> list[Block]:
    """The values seen in the data of every column but one."""
    assert data.schema is not None
    blocks = []
    for column in data.schema.columns:
        if column.name == fixed.name:
            continue
        seen = torch.unique(data.x[:, column.start : column.stop], dim=0)
        if len(seen) > choices:  # ascending, so that the ends are kept
            seen = seen[torch.linspace(0, len(seen) - 1, choices).round().long().to(seen.device)]
        blocks.append((column, seen))
    return blocks


def _searched(
    gap: Gap,
    x: Tensor,
    y: Tensor,
    blocks: list[Block],
    settings: Craft,
    rng: np.random.Generator,
) -> Tensor:
    """One column after the other takes its best value, for some sweeps over all columns."""
    best = -1.0
    for _ in range(settings.sweeps):
        before = best
        for at in rng.permutation(len(blocks)).tolist():
            column, seen = blocks[at]
            several = x.repeat(len(seen), 1)
            several[:, column.start : column.stop] = seen
            with torch.no_grad():
                found = gap.measure(several, y.expand(len(seen)), settings.distance)
            best = float(found.max())
            x = several[int(found.argmax())]
        if best <= before:
            break
    return x


def _ascended(gap: Gap, x: Tensor, y: Tensor, data: Dataset, settings: Craft) -> Tensor:
    """Gradient ascent of each start by itself; the best point on its way, by clipped distance."""
    low, high = _range(data, settings.domain)
    current = x.clone().requires_grad_()
    optimizer = torch.optim.Adam([current], lr=settings.lr, maximize=True)
    best, reached = x.clone(), torch.full((len(x),), -1.0, dtype=x.dtype, device=x.device)
    for _ in range(settings.steps + 1):
        with torch.no_grad():
            clipped = gap.measure(current, y, "clipped")
            better = clipped > reached
            best[better], reached[better] = current[better], clipped[better]
        optimizer.zero_grad()
        # A sum: the starts do not touch each other.
        torch.autograd.backward(gap.measure(current, y, settings.distance).sum())
        optimizer.step()
        with torch.no_grad():
            current.copy_(torch.minimum(torch.maximum(current, low), high))
    return best.detach()


def _range(data: Dataset, domain: Domain) -> tuple[Tensor, Tensor]:
    if domain == "free":
        limit = torch.full_like(data.x[0], float("inf"))
        return -limit, limit
    return data.x.amin(dim=0), data.x.amax(dim=0)
