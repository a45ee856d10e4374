"""Plays an attempt over several epochs of one client that holds all the records."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from leakgauge.inversion.epochs.assignment import (
    METHODS,
    arrange,
    match_epochs,
    matching_accuracy,
    true_records,
)
from leakgauge.inversion.epochs.epoch import EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.epochs.per_sample import per_sample_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.table import LABEL_ACCURACY, WITHOUT
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.baselines import baselines_of
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.rounds import SingleEpoch, play_epochs
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.scoring import (
    SNAPSHOTS,
    chance_of,
    curves_of,
    in_true_order,
    in_units_of_scores,
    scores_of,
)
from leakgauge.inversion.run.updates import in_updates
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.inversion.words import GRADIENTS, GREEDY, KNOWN, OPTIMAL, PER_SAMPLE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of

POOL = 2
"""Side of the square of pixels that is averaged before images are compared, as in the paper."""


def rebuild_over_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
) -> Rebuilt:
    """Return what all updates of all epochs together rebuild.

    The client deals its records anew in each epoch; the server steps after each update. Each update
    is inverted alone first; then the rough records are matched between epochs, and the records are
    searched for by all of their updates. The assignments by rough images are always scored, also
    without pooling or labels: they cost nothing.
    """
    checkpoint = checkpoint or Checkpoint(None)
    singles = play_epochs(scenario, attempt, lpips, progress, checkpoint)
    plans = _by_images(scenario, singles)
    shared: dict[str, Any] = {
        "record": tuple(scenario.x.shape[1:]),
        "low": scenario.low,
        "high": scenario.high,
        "seed": attempt.spec.seed,
        "progress": progress,
    }
    plan = _plan(scenario, attempt, singles, plans, checkpoint, shared)
    joint = _rebuild(
        scenario,
        attempt,
        singles,
        plan,
        {
            **shared,
            "snapshots": SNAPSHOTS,
            "checkpoint": checkpoint.part("joint", after=digest_of({"plan": plan.members})),
        },
    )
    x = joint.x.flatten(0, 1)
    matched = _matched(scenario, singles, plans)
    if attempt.rules.matching == GRADIENTS:
        matched[GRADIENTS] = _matched_by_gradients(scenario, singles, plan, x)
    # The first epoch numbers the records: as for single epochs, an update's records stay in it.
    truth = in_updates(scenario.x, attempt.client)
    rows = in_true_order(x.view_as(truth), truth)
    return Rebuilt(
        in_units_of_scores(scenario, rows),
        in_units_of_scores(scenario, scenario.x),
        {
            **scores_of(scenario, rows, scenario.x, lpips),
            LABEL_ACCURACY: singles[0].scores[LABEL_ACCURACY],
            **{f"matching_{name}": shares for name, shares in matched.items()},
        },
        curves_of(scenario, joint, truth),
        joint.seconds_per_iteration,
        tuple(dict.fromkeys(text for one in singles for text in one.warnings)),
        rounds={number: one.scores for number, one in enumerate(singles, start=1)},
        chance=chance_of(scenario),
        baselines=baselines_of(scenario, truth, singles[0].labels, lpips),
    )


def _by_images(scenario: Scenario, singles: Sequence[SingleEpoch]) -> dict[str, EpochPlan]:
    """The plans by rough images: of each method, and of the paper's without pooling or labels."""
    pool = POOL if scenario.pixels is not None else 1
    rough, labels = [one.rough for one in singles], [one.labels for one in singles]
    blank = [torch.zeros_like(one) for one in labels]
    plans = {name: match_epochs(rough, labels, pool=pool, method=name) for name in METHODS}
    for name, (pooled, labelled) in WITHOUT.items():
        plans[f"{GREEDY}_{name}"] = match_epochs(
            rough,
            labels if labelled else blank,
            pool=pool if pooled else 1,
            method=GREEDY,
        )
    return plans


def _plan(
    scenario: Scenario,
    attempt: Attempt,
    singles: Sequence[SingleEpoch],
    plans: Mapping[str, EpochPlan],
    checkpoint: Checkpoint,
    shared: Mapping[str, Any],
) -> EpochPlan:
    """The plan that the joint search follows."""
    matching = attempt.rules.matching
    if matching == KNOWN:  # granted: the first epoch numbers the records in their true order
        return EpochPlan(torch.stack([one.order for one in singles]))
    if matching != GRADIENTS:
        return plans[matching]
    return refine_assignment(
        scenario.task,
        [one.seen for one in singles],
        plans[OPTIMAL],
        attempt.settings,
        labels=singles[0].labels.flatten(),
        checkpoint=checkpoint,
        **shared,
    )


def _rebuild(
    scenario: Scenario,
    attempt: Attempt,
    singles: Sequence[SingleEpoch],
    plan: EpochPlan,
    shared: Mapping[str, Any],
) -> Reconstruction:
    """All records by the plan, ``x [1, n, ...]`` or ``[n, 1, ...]``."""
    rules, epochs = attempt.rules, [one.seen for one in singles]
    given = (scenario.task, epochs, plan, attempt.settings)
    weights = rules.weights(len(epochs))
    labels = singles[0].labels.flatten()
    if rules.joint != PER_SAMPLE:
        return joint_reconstruct(*given, labels=labels, weights=weights, **shared)
    own = [one.labels for one in singles]
    if rules.matching == GRADIENTS:  # The order within an update means nothing there.
        own = [plan.batches(labels, epoch=number) for number in range(len(epochs))]
    return per_sample_reconstruct(*given, labels=own, weights=weights, **shared)


def _records(scenario: Scenario, singles: Sequence[SingleEpoch]) -> list[Tensor]:
    """The true record of each rough one, of each epoch."""
    return [true_records(one.rough, scenario.x, one.order) for one in singles]


def _matched(
    scenario: Scenario, singles: Sequence[SingleEpoch], plans: Mapping[str, EpochPlan]
) -> dict[str, Tensor]:
    """The share of records that each plan by rough images assigns correctly."""
    records = _records(scenario, singles)
    return {name: matching_accuracy(one, records) for name, one in plans.items()}


def _matched_by_gradients(
    scenario: Scenario, singles: Sequence[SingleEpoch], plan: EpochPlan, x: Tensor
) -> Tensor:
    """As ``_matched``; the plan's records are those of the joint search ``x``."""
    pool = POOL if scenario.pixels is not None else 1
    rough, labels = [one.rough for one in singles], [one.labels for one in singles]
    arranged = arrange(plan, x, labels[0].flatten(), rough, labels, pool=pool)
    first = singles[0].order
    own = true_records(x.view(*first.shape, *x.shape[1:]), scenario.x, first)
    return matching_accuracy(arranged, [own, *_records(scenario, singles)[1:]])
