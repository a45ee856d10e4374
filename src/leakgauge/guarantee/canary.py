"""Crafted canaries: records with versions that have distant gradients."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.gradients import params_of
from leakgauge.guarantee.pair import Attribute, NeighbourPair
from leakgauge.guarantee.search import (
    Block,
    Craft,
    VersionDistance,
    ascend,
    blocks_of,
    random_state,
    search_columns,
    version_distance,
)
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of


@dataclass(frozen=True, eq=False)
class Canary:
    """A crafted pair.

    Attributes:
        pair: the record.
        distance: ||clip(g_H0) - clip(g_H1)||; the root mean square over several new values.
        distance_over_clip: the distance as a share of the clip, from 0 to 2.
        settings: settings of the search.
    """

    pair: NeighbourPair
    distance: float
    distance_over_clip: float
    settings: Craft


def craft(
    task: Task,
    params: Params | None,
    data: Dataset,
    attribute: Attribute,
    settings: Craft | None = None,
    *,
    clip: float,
    rng: np.random.Generator,
    checkpoint: Checkpoint | None = None,
) -> Canary:
    """Search for the record with the largest distance between its versions.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name; None takes the model's own.
        data: private records, which provide the starts and the values to try.
        attribute: attribute that differs between the versions, from ``attribute_of``.
        settings: settings of the search; None means ``Craft()``.
        clip: clip of the audited mechanism.
        rng: draws the starts and the order of columns.
        checkpoint: keeps intermediate states; a killed search resumes and finds the same record.

    Raises:
        InputError: there are fewer records than restarts, or the model's gradients cannot be
            vectorised.
    """
    settings, checkpoint = settings or Craft(), checkpoint or Checkpoint(None)
    require(
        settings.restarts <= len(data),
        f"{settings.restarts} restarts need as many records; there are {len(data)}",
    )
    params = params_of(task.model) if params is None else params
    between = version_distance(task, params, attribute, data.x[:2], data.y[:2], clip=clip)
    rows = torch.from_numpy(rng.permutation(len(data))[: settings.restarts])
    labels = torch.unique(data.y)
    x = data.x[rows.to(data.x.device)].repeat(len(labels), 1)
    y = labels.repeat_interleave(settings.restarts)
    if settings.sweeps:
        blocks = blocks_of(data, attribute.column, settings.choices)
        x = _search_each(between, x, y, blocks, settings, rng, checkpoint)
    if settings.domain != "valid":
        part = checkpoint.part("ascent", after=digest_of({"x": x, "y": y}))
        x = ascend(between, x, y, data, settings, part)
    with torch.no_grad():
        # A start that diverged to infinity has no distance.
        found = between.measure(x, y, "clipped").nan_to_num(nan=0.0)
    best, distance = int(found.argmax()), float(found.max())
    pair = NeighbourPair(x[best].clone(), y[best], attribute, origin=f"crafted-{settings.domain}")
    return Canary(pair, distance, distance / clip, settings)


def _search_each(
    between: VersionDistance,
    x: Tensor,
    y: Tensor,
    blocks: list[Block],
    settings: Craft,
    rng: np.random.Generator,
    checkpoint: Checkpoint,
) -> Tensor:
    """Return each start ``[n, F]`` after ``search_columns``."""
    after = digest_of({"x": x, "y": y})
    kept = checkpoint.part("starts", after=after)
    state = {"done": 0, "x": x, **random_state(rng), **(kept.read() or {})}
    rng.bit_generator.state = state["rng"]
    x = state["x"].to(x)
    for one in range(state["done"], len(x)):
        part = checkpoint.part(f"start-{one:03d}", after=after)
        x[one] = search_columns(between, x[one], y[one], blocks, settings, rng, part)
        kept.keep({"done": one + 1, "x": x, **random_state(rng)})
    return x
