"""The record to release: one of the table, or the worst that a search finds."""

from collections.abc import Callable
from typing import cast, get_args

import torch

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.guarantee.canary import Canary, craft
from leakgauge.guarantee.pair import NeighbourPair, attribute_of, choose_pairs
from leakgauge.guarantee.search import Craft, Distance
from leakgauge.guarantee.spec import RANDOM, Domain, GuaranteeSpec, claimed
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import WorkFolder

OBJECTIVES: tuple[Distance, ...] = ("clipped", "cosine")
"""Distances to maximise: the paper's, and the one that it found worse. The better
search depends on the clip and the start; the record with the larger clipped distance is kept."""


def pair_of(
    task: Task,
    params: Params,
    data: Dataset,
    spec: GuaranteeSpec,
    progress: Callable[[int, int], None],
    checkpoint: Checkpoint,
) -> NeighbourPair:
    """Return the record in its versions.

    Args:
        task: the model and its loss.
        params: the audited parameters.
        data: the encoded table.
        spec: resolved settings.
        progress: called with the numbers of finished and of all searches.
        checkpoint: keeps intermediate states of the searches.
    """
    if spec.canary == RANDOM:
        rng = stream(spec.seed, "pairs")
        return choose_pairs(data, str(spec.attribute), 1, rng=rng)[0]
    crafted: list[Canary] = []
    for distance in OBJECTIVES:
        progress(len(crafted), len(OBJECTIVES))
        crafted.append(_crafted(task, params, data, spec, distance, checkpoint.part(distance)))
    progress(len(crafted), len(OBJECTIVES))
    return max(crafted, key=lambda canary: canary.distance).pair


def _crafted(
    task: Task,
    params: Params,
    data: Dataset,
    spec: GuaranteeSpec,
    distance: Distance,
    checkpoint: Checkpoint,
) -> Canary:
    attribute = attribute_of(data, str(spec.attribute), rng=stream(spec.seed, "values"))
    settings = Craft(_domain(spec), distance, min(Craft.restarts, len(data)))
    rng = stream(spec.seed, "craft")
    return craft(
        task,
        params,
        data,
        attribute,
        settings,
        clip=claimed(spec).clip,
        rng=rng,
        checkpoint=checkpoint,
    )


def _domain(spec: GuaranteeSpec) -> Domain:
    domain = spec.canary.split("-")[1]
    assert domain in get_args(Domain)
    return cast(Domain, domain)


NAME = "record"


def keep_pair(folder: WorkFolder, pair: NeighbourPair) -> None:
    """Keep a pair in the folder."""
    arrays = {"x": pair.x.cpu().numpy(), "y": pair.y.cpu().numpy()}
    about = {"values": list(pair.attribute.values), "origin": pair.origin}
    folder.keep_arrays(NAME, arrays, about)


def kept_pair(folder: WorkFolder, data: Dataset, spec: GuaranteeSpec) -> NeighbourPair | None:
    """Return the pair that the folder keeps, or None.

    Args:
        folder: work folder of the audit.
        data: the encoded table.
        spec: resolved settings.
    """
    kept = folder.arrays(NAME)
    if kept is None:
        return None
    arrays, about = kept
    x, y = (torch.from_numpy(arrays[name]).to(data.x.device) for name in ("x", "y"))
    attribute = attribute_of(data, str(spec.attribute), values=tuple(about["values"]))
    return NeighbourPair(x, y, attribute, str(about["origin"]))
