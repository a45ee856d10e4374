"""Crafted canaries: records whose two versions have gradients that are far apart."""

from dataclasses import dataclass

import numpy as np
import torch

from leakgauge.core.checks import require
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.gradients import params_of
from leakgauge.guarantee.distance import version_distance
from leakgauge.guarantee.pair import Attribute, Pair
from leakgauge.guarantee.search import Craft, ascend, blocks_of, search_columns


@dataclass(frozen=True, eq=False)
class Canary:
    """A crafted pair.

    Attributes:
        pair: the record.
        distance: ||clip(g_H0) - clip(g_H1)||.
        distance_over_clip: the distance as a share of the clip, from 0 to 2.
        settings: of the search.
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
    settings: Craft | None = None,
    *,
    clip: float,
    rng: np.random.Generator,
) -> Canary:
    """Return the record whose two versions differ most, of those that the search tries.

    Args:
        task: the model and its loss.
        params: all trainable parameters by name; None takes the model's own.
        data: the private records: they give the starts, and the values that occur.
        attribute: differs between the versions, as from ``attribute_of``.
        settings: of the search; None takes ``Craft()``.
        clip: of the mechanism that is audited.
        rng: draws the starts and the order of columns.

    Raises:
        InputError: there are fewer records than restarts, or the model's gradients cannot be
            vectorised.
    """
    settings = settings or Craft()
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
        for one in range(len(x)):
            x[one] = search_columns(between, x[one], y[one], blocks, settings, rng)
    if settings.domain != "valid":
        x = ascend(between, x, y, data, settings)
    with torch.no_grad():
        # A start that ran off to infinity has no distance.
        distances = between.measure(x, y, "clipped").nan_to_num(nan=0.0)
    best = int(distances.argmax())
    pair = Pair(x[best].clone(), y[best], attribute, origin=f"crafted-{settings.domain}")
    distance = float(distances[best])
    return Canary(pair, distance, distance / clip, settings)
