"""Plays one attempt to rebuild records, and scores it."""

import functools
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.data.decode import fits
from leakgauge.inversion.epochs.assignment import (
    METHODS,
    arrange,
    match_epochs,
    matching_accuracy,
    true_records,
)
from leakgauge.inversion.epochs.joint import Epoch, joint_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.exact import recover_first_layer
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.similarity import align_to_truth
from leakgauge.inversion.metrics.table import LABEL_ACCURACY
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import (
    Rebuilt,
    chance_of,
    curves_of,
    ordered,
    scores_of,
    shown,
)
from leakgauge.inversion.run.spec import EXACT, GRADIENTS, KNOWN, InversionCell
from leakgauge.inversion.search.attack import Knowledge, attack
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.training.client import Client, Sent, send

SNAPSHOTS = 25


def rebuild(
    scene: Scenario,
    cell: InversionCell,
    *,
    lpips: Lpips | None = None,
    progress: Progress | None = None,
) -> Rebuilt:
    """Send, attack and score; the truth is looked at for the scores alone.

    Args:
        scene: from ``scenario_of``.
        cell: settled.
        lpips: scores images, too.
        progress: told of each iteration.
    """
    if cell.method == EXACT:
        return _exact(scene, cell)
    play = _over_epochs if cell.epochs > 1 else _once
    return play(scene, cell, lpips, progress)


def _exact(scene: Scenario, cell: InversionCell) -> Rebuilt:
    """The candidates of most support, as many as there are records; the rest is guessed."""
    assert scene.schema is not None
    client = cell.client
    x, y = _dealt(scene.x, client), _dealt(scene.y, client)
    began = time.perf_counter()
    sent = send(scene.task, scene.params, x, y, client, seed=cell.seed)
    # The difference of weights is rounder than a gradient.
    tolerance = 1e-4 if client.local_steps == 1 else 1e-2
    valid = functools.partial(fits, schema=scene.schema)
    several = client.records > 1
    found = scene.guess.expand_as(x).clone()
    for target in range(len(x)):
        grads = {name: leaf[target : target + 1] for name, leaf in sent.grads.items()}
        best = recover_first_layer(
            scene.task,
            scene.params,
            grads,
            agree=1 if several else 2,
            tolerance=tolerance,
            valid=valid if several else None,
        ).x[: client.records]
        found[target, : len(best)] = best
    rows = ordered(found, x)
    scores = scores_of(scene, rows, scene.x, None)
    seconds = time.perf_counter() - began
    return Rebuilt(rows, scene.x, scores, {}, seconds, sent.warnings(), chance=chance_of(scene))


def _once(
    scene: Scenario, cell: InversionCell, lpips: Lpips | None, progress: Progress | None
) -> Rebuilt:
    client = cell.client
    x, y = _dealt(scene.x, client), _dealt(scene.y, client)
    sent, found = _attacked(
        scene, cell, scene.params, x, y, seed=cell.seed, snapshots=SNAPSHOTS, progress=progress
    )
    rows = ordered(found.x, x)
    scores = scores_of(scene, rows, scene.x, lpips)
    return Rebuilt(
        shown(scene, rows),
        shown(scene, scene.x),
        {**scores, LABEL_ACCURACY: label_accuracy(found.labels, y)},
        curves_of(scene, found, x),
        found.seconds_per_iteration,
        sent.warnings(simulated=cell.simulate),
        chance=chance_of(scene),
    )


def _attacked(
    scene: Scenario,
    cell: InversionCell,
    params: Params,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    snapshots: int = 0,
    progress: Progress | None,
) -> tuple[Sent, Reconstruction]:
    """What clients with these records send, and what is rebuilt from it; ``seed`` of the search."""
    sent = send(scene.task, params, x, y, cell.client, seed=cell.seed)
    return sent, attack(
        scene.task,
        params,
        sent,
        cell.settings,
        cell.client,
        _known(scene, cell, y),
        record=tuple(scene.x.shape[1:]),
        seed=seed,
        snapshots=snapshots,
        progress=progress,
    )


@dataclass(frozen=True, eq=False)
class _Seen:
    """Each epoch by itself.

    Attributes:
        epochs: what the server saw.
        orders: the true records of the updates, ``[U, B]`` each: for scoring alone.
        rough: what each update gave up, ``[U, B, ...]``.
        labels: of these, ``[U, B]``.
        scores: of single epochs, which count from 1.
    """

    epochs: list[Epoch] = field(default_factory=list)
    orders: list[Tensor] = field(default_factory=list)
    rough: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    scores: dict[int, dict[str, Tensor]] = field(default_factory=dict)


def _over_epochs(
    scene: Scenario, cell: InversionCell, lpips: Lpips | None, progress: Progress | None
) -> Rebuilt:
    """One client deals all its records anew in each epoch; the server steps between epochs.

    Rough images of each update come first, at full length; then their matching, and all records
    together. The ways to match by rough images are scored in any case: they cost nothing.
    """
    seen = _in_each_epoch(scene, cell, lpips, progress)
    pool = 1 if scene.pixels is None else 2
    plans = {
        name: match_epochs(seen.rough, seen.labels, pool=pool, method=name) for name in METHODS
    }
    given: dict[str, Any] = {
        "labels": seen.labels[0].flatten(),
        "record": tuple(scene.x.shape[1:]),
        "low": scene.low,
        "high": scene.high,
        "seed": cell.seed,
        "progress": progress,
    }
    by_gradients = cell.matching == GRADIENTS
    plan = plans["optimal" if by_gradients else str(cell.matching)]
    if by_gradients:
        plan = refine_assignment(scene.task, seen.epochs, plan, cell.settings, **given)
    joint = joint_reconstruct(
        scene.task, seen.epochs, plan, cell.settings, snapshots=SNAPSHOTS, **given
    )
    x = joint.x[0]
    pairs = zip(seen.rough, seen.orders, strict=True)
    records = [true_records(images, scene.x, order) for images, order in pairs]
    matched = {name: matching_accuracy(one, records) for name, one in plans.items()}
    if by_gradients:
        # Its records are the images of the joint search, not those of the first epoch alone.
        plan = arrange(plan, x, given["labels"], seen.rough, seen.labels, pool=pool)
        first = seen.orders[0]
        mine = true_records(x.view(*first.shape, *x.shape[1:]), scene.x, first)
        matched[GRADIENTS] = matching_accuracy(plan, [mine, *records[1:]])
    rows = x[align_to_truth(x, scene.x)]
    return Rebuilt(
        shown(scene, rows),
        shown(scene, scene.x),
        {
            **scores_of(scene, rows, scene.x, lpips),
            LABEL_ACCURACY: seen.scores[1][LABEL_ACCURACY],
            **{f"matching_{name}": shares for name, shares in matched.items()},
        },
        curves_of(scene, joint, scene.x[None]),
        joint.seconds_per_iteration,
        rounds=seen.scores,
        chance=chance_of(scene),
    )


def _in_each_epoch(
    scene: Scenario, cell: InversionCell, lpips: Lpips | None, progress: Progress | None
) -> _Seen:
    client, n = cell.client, len(scene.x)
    params, seen = scene.params, _Seen()
    for number in range(cell.epochs):
        drawn = stream(cell.seed, "epoch", number).permutation(n) if number else range(n)
        order = torch.as_tensor(list(drawn), device=scene.y.device)
        x, y = _dealt(scene.x[order], client), _dealt(scene.y[order], client)
        sent, found = _attacked(
            scene, cell, params, x, y, seed=cell.seed + number, progress=progress
        )
        seen.epochs.append(Epoch(params, sent.grads))
        seen.orders.append(order.view(-1, client.records))
        seen.rough.append(found.x)
        seen.labels.append(found.labels)
        seen.scores[number + 1] = {
            **scores_of(scene, ordered(found.x, x), scene.x[order], lpips),
            LABEL_ACCURACY: label_accuracy(found.labels, y),
        }
        step = {name: leaf.mean(dim=0) for name, leaf in sent.grads.items()}
        params = {name: leaf - cell.local_lr * step[name] for name, leaf in params.items()}
    return seen


def _dealt(values: Tensor, client: Client) -> Tensor:
    """``[N, ...]`` as the updates hold them, ``[T, S * B, ...]``."""
    return values.reshape(-1, client.records, *values.shape[1:])


def _known(scene: Scenario, cell: InversionCell, y: Tensor) -> Knowledge:
    granted = y if cell.labels == KNOWN else None
    return Knowledge(scene.low, scene.high, granted, cell.adaptive, cell.simulate)
