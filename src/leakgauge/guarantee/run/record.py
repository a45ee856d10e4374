"""The record to release: one of the table, or the worst that a search finds."""

from collections.abc import Callable
from typing import cast

import torch

from leakgauge.core.rng import stream
from leakgauge.core.types import Params, Task
from leakgauge.guarantee.canary import Canary, craft
from leakgauge.guarantee.pair import NeighbourPair, attribute_of, choose_pairs
from leakgauge.guarantee.run.preparing import GuaranteePrepared
from leakgauge.guarantee.search import Craft, Distance
from leakgauge.guarantee.spec import RANDOM, Domain
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.parts import Kept

OBJECTIVES: tuple[Distance, ...] = ("clipped", "cosine")
"""Distances to maximise: the paper's, and the one that it found worse. The better search
depends on the clip and the start; the record with the larger clipped distance is kept."""


def pair_of(
    prepared: GuaranteePrepared,
    task: Task,
    params: Params,
    progress: Callable[[int, int], None],
    checkpoint: Checkpoint,
) -> NeighbourPair:
    """Return the record in its versions.

    ``progress`` gets the numbers of finished and of all searches; the checkpoint keeps their state.
    """
    spec, data = prepared.spec, prepared.data
    if spec.canary == RANDOM:
        return choose_pairs(data, prepared.attribute, 1, rng=stream(spec.seed, "pairs"))[0]
    crafted: list[Canary] = []
    domain = spec.canary.split("-")[1]
    for distance in OBJECTIVES:
        progress(len(crafted), len(OBJECTIVES))
        canary = craft(
            task,
            params,
            data,
            attribute_of(data, prepared.attribute, rng=stream(spec.seed, "values")),
            Craft(cast(Domain, domain), distance, min(Craft.restarts, len(data))),
            clip=prepared.claimed.clip,
            rng=stream(spec.seed, "craft"),
            checkpoint=checkpoint.part(distance),
        )
        crafted.append(canary)
    progress(len(crafted), len(OBJECTIVES))
    return max(crafted, key=lambda canary: canary.distance).pair


def pair_to_arrays(pair: NeighbourPair) -> Kept:
    """Return a pair as arrays and plain values."""
    about = {"values": list(pair.attribute.values), "origin": pair.origin}
    return {"x": pair.x.cpu().numpy(), "y": pair.y.cpu().numpy()}, about


def pair_from_arrays(kept: Kept, prepared: GuaranteePrepared) -> NeighbourPair:
    """Return the pair that ``pair_to_arrays`` gave."""
    arrays, about = kept
    x, y = (torch.from_numpy(arrays[name]).to(prepared.data.x.device) for name in ("x", "y"))
    values = tuple(about["values"])
    attribute = attribute_of(prepared.data, prepared.attribute, values=values)
    return NeighbourPair(x, y, attribute, str(about["origin"]))
