"""Plays an attempt over several epochs of one client that holds all the records."""

import functools
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inversion.epochs.accuracy import matching_accuracy, true_records
from leakgauge.inversion.epochs.assignment import METHODS, arrange, match_epochs
from leakgauge.inversion.epochs.joint import Epoch, joint_reconstruct
from leakgauge.inversion.epochs.plan import EpochPlan
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.similarity import align_to_truth
from leakgauge.inversion.metrics.table import LABEL_ACCURACY
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import (
    SNAPSHOTS,
    chance_of,
    curves_of,
    in_true_order,
    in_units_of_scores,
    scores_of,
)
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.search.targets import Progress
from leakgauge.inversion.words import GRADIENTS
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of


@dataclass(frozen=True, eq=False)
class _SingleEpochs:
    """What was sent and rebuilt in each epoch by itself.

    Attributes:
        epochs: what the server saw.
        orders: the true records of the updates, ``[U, B]`` each: for scoring alone.
        rough: records rebuilt from each update alone, by a short search, ``[U, B, ...]``.
        labels: of these, ``[U, B]``.
        scores: of a search at full length, by epoch, counted from 1.
    """

    epochs: list[Epoch] = field(default_factory=list)
    orders: list[Tensor] = field(default_factory=list)
    rough: list[Tensor] = field(default_factory=list)
    labels: list[Tensor] = field(default_factory=list)
    scores: dict[int, dict[str, Tensor]] = field(default_factory=dict)


def rebuild_over_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Rebuilt:
    """Return what all updates of all epochs together rebuild.

    The client deals its records anew in each epoch; the server steps between epochs. Each update
    is inverted alone first; then the rough records are matched between epochs, and all records
    are searched for together. The assignments by rough images are always scored: they cost
    nothing.
    """
    checkpoint = checkpoint or Checkpoint(None)
    single = _play_epochs(scenario, attempt, lpips, progress, checkpoint)
    pool = 1 if scenario.pixels is None else 2
    plans = {
        name: match_epochs(single.rough, single.labels, pool=pool, method=name) for name in METHODS
    }
    shared: dict[str, Any] = {
        "labels": single.labels[0].flatten(),
        "record": tuple(scenario.x.shape[1:]),
        "low": scenario.low,
        "high": scenario.high,
        "seed": attempt.spec.seed,
        "progress": progress,
    }
    settings, by_gradients = attempt.settings, attempt.spec.matching == GRADIENTS
    plan = plans["optimal" if by_gradients else str(attempt.spec.matching)]
    if by_gradients:
        plan = refine_assignment(
            scenario.task, single.epochs, plan, settings, checkpoint=checkpoint, **shared
        )
    joint = joint_reconstruct(
        scenario.task,
        single.epochs,
        plan,
        settings,
        snapshots=SNAPSHOTS,
        checkpoint=checkpoint.part("joint", after=digest_of({"plan": plan.members})),
        **shared,
    )
    x = joint.x[0]
    matched = _matched(scenario, single, plans)
    if by_gradients:
        matched[GRADIENTS] = _matched_by_gradients(scenario, single, plan, x, pool=pool)
    rows = x[align_to_truth(x, scenario.x)]
    return Rebuilt(
        in_units_of_scores(scenario, rows),
        in_units_of_scores(scenario, scenario.x),
        {
            **scores_of(scenario, rows, scenario.x, lpips),
            LABEL_ACCURACY: single.scores[1][LABEL_ACCURACY],
            **{f"matching_{name}": shares for name, shares in matched.items()},
        },
        curves_of(scenario, joint, scenario.x[None]),
        joint.seconds_per_iteration,
        rounds=single.scores,
        chance=chance_of(scenario),
    )


def _play_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint,
) -> _SingleEpochs:
    client, spec, count = attempt.client, attempt.spec, len(scenario.x)
    params, single = scenario.params, _SingleEpochs()
    for number in range(spec.epochs):
        drawn = stream(spec.seed, "epoch", number).permutation(count) if number else range(count)
        order = torch.as_tensor(list(drawn), device=scenario.y.device)
        x, y = (in_updates(values[order], client) for values in (scenario.x, scenario.y))
        play = functools.partial(
            attack_updates,
            *(scenario, attempt, params, x, y),
            seed=spec.seed + number,
            progress=progress,
        )
        part = checkpoint.part(f"rough-{number + 1}", after=digest_of(params))
        sent, rough = play(settings=attempt.rough, checkpoint=part)
        search = rough
        if attempt.rough != attempt.settings:  # An epoch by itself is scored at full length.
            part = checkpoint.part(f"epoch-{number + 1}", after=digest_of(params))
            _, search = play(checkpoint=part)
        single.epochs.append(Epoch(params, sent.grads))
        single.orders.append(order.view(-1, client.records))
        single.rough.append(rough.x)
        single.labels.append(rough.labels)
        single.scores[number + 1] = {
            **scores_of(scenario, in_true_order(search.x, x), scenario.x[order], lpips),
            LABEL_ACCURACY: label_accuracy(search.labels, y),
        }
        params = _after_step(params, single.epochs[-1], spec.local_lr)
    return single


def _after_step(params: Params, epoch: Epoch, lr: float) -> Params:
    """The weights after the server's step along the mean gradient of an epoch."""
    step = {name: leaf.mean(dim=0) for name, leaf in epoch.grads.items()}
    return {name: leaf - lr * step[name] for name, leaf in params.items()}


def _records(scenario: Scenario, single: _SingleEpochs) -> list[Tensor]:
    """The true record of each rough one, of each epoch."""
    pairs = zip(single.rough, single.orders, strict=True)
    return [true_records(images, scenario.x, order) for images, order in pairs]


def _matched(
    scenario: Scenario, single: _SingleEpochs, plans: dict[str, EpochPlan]
) -> dict[str, Tensor]:
    """The share of records that each plan by rough images assigns correctly."""
    records = _records(scenario, single)
    return {name: matching_accuracy(one, records) for name, one in plans.items()}


def _matched_by_gradients(
    scenario: Scenario, single: _SingleEpochs, plan: EpochPlan, x: Tensor, *, pool: int
) -> Tensor:
    """As ``_matched``; the plan's records are those of the joint search ``x``."""
    labels = single.labels[0].flatten()
    arranged = arrange(plan, x, labels, single.rough, single.labels, pool=pool)
    first = single.orders[0]
    own = true_records(x.view(*first.shape, *x.shape[1:]), scenario.x, first)
    return matching_accuracy(arranged, [own, *_records(scenario, single)[1:]])
