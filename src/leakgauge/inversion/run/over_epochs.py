"""Runs an attempt over several epochs of one client that holds all the records."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.inversion.epochs.assignment import (
    METHODS,
    arrange,
    match_epochs,
    matching_accuracy,
    true_records,
)
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.epochs.joint import joint_reconstruct
from leakgauge.inversion.epochs.per_sample import per_sample_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.labels.inference import label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips
from leakgauge.inversion.metrics.table import LABEL_ACCURACY, WITHOUT
from leakgauge.inversion.observed import AttackOptions, Reconstruction, SearchProgress
from leakgauge.inversion.run.attempt import Attempt
from leakgauge.inversion.run.drawing import deal_distinct
from leakgauge.inversion.run.measuring import SNAPSHOTS, chance_of, curves_of
from leakgauge.inversion.run.rebuilt import Rebuilt
from leakgauge.inversion.run.scenario import Scenario
from leakgauge.inversion.run.updates import attack_updates, in_updates
from leakgauge.inversion.scoring import in_true_order
from leakgauge.inversion.words import DISTINCT, GRADIENTS, GREEDY, KNOWN, OPTIMAL, PER_SAMPLE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.work import digest_of
from leakgauge.training.sending import Sent

POOL = 2
"""Side of the square of pixels that is averaged before images are compared, as in the paper."""


@dataclass(frozen=True, eq=False)
class SingleEpoch:
    """What was sent in one epoch, and rebuilt from each of its updates alone.

    Attributes:
        seen: what the server saw.
        order: the true records of the updates, ``[U, B]``: for scoring alone.
        rough: records rebuilt from each update alone, by a short search, ``[U, B, ...]``.
        labels: labels of the rough records, ``[U, B]``.
        scores: scores of a search at full length, and of the labels.
        warnings: why an update may not stand for a gradient.
    """

    seen: Epoch
    order: Tensor
    rough: Tensor
    labels: Tensor
    scores: dict[str, Tensor]
    warnings: tuple[str, ...]


def rebuild_over_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: SearchProgress | None,
    checkpoint: Checkpoint | None,
) -> Rebuilt:
    """Return what all updates of all epochs together rebuild.

    The client deals its records anew in each epoch; the server steps after each update. Each update
    is inverted alone first; then the rough records are matched between epochs, and the records are
    searched for by all of their updates. The assignments by rough images are always scored, also
    without pooling or labels: they cost nothing.
    """
    checkpoint = checkpoint or Checkpoint(None)
    singles = run_epochs(scenario, attempt, lpips, progress, checkpoint)
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
    scorer, rows = scenario.scorer(lpips), in_true_order(x.view_as(truth), truth)
    guesses = scenario.baselines.guesses(truth, singles[0].labels)
    return Rebuilt(
        scorer.in_units(rows),
        scorer.in_units(scenario.x),
        {
            **scorer.scores(rows, scenario.x),
            LABEL_ACCURACY: singles[0].scores[LABEL_ACCURACY],
            **{f"matching_{name}": shares for name, shares in matched.items()},
        },
        curves_of(scenario, joint, truth),
        joint.seconds_per_iteration,
        tuple(dict.fromkeys(text for one in singles for text in one.warnings)),
        rounds={number: one.scores for number, one in enumerate(singles, start=1)},
        chance=chance_of(scenario),
        baselines=scorer.scores_of_guesses(guesses, scenario.x),
    )


def _by_images(scenario: Scenario, singles: Sequence[SingleEpoch]) -> dict[str, EpochPlan]:
    """Return the plans by rough images, also the paper's without pooling or labels."""
    pool = POOL if scenario.pixels is not None else 1
    rough, labels = [one.rough for one in singles], [one.labels for one in singles]
    blank = [torch.zeros_like(one) for one in labels]
    plans = {name: match_epochs(rough, labels, pool=pool, method=name) for name in METHODS}
    for name, (pooled, labelled) in WITHOUT.items():
        plans[f"{GREEDY}_{name}"] = match_epochs(
            rough, labels if labelled else blank, pool=pool if pooled else 1, method=GREEDY
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
    """Return the plan that the joint search follows."""
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
    """Return all records by the plan, ``x [1, n, ...]`` or ``[n, 1, ...]``."""
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
    """Return the true record of each rough one, for each epoch."""
    return [true_records(one.rough, scenario.x, one.order) for one in singles]


def _matched(
    scenario: Scenario, singles: Sequence[SingleEpoch], plans: Mapping[str, EpochPlan]
) -> dict[str, Tensor]:
    """Return the share of records that each plan by rough images assigns correctly."""
    records = _records(scenario, singles)
    return {name: matching_accuracy(one, records) for name, one in plans.items()}


def _matched_by_gradients(
    scenario: Scenario, singles: Sequence[SingleEpoch], plan: EpochPlan, x: Tensor
) -> Tensor:
    """Return the share of records that the plan of the joint search ``x`` assigns correctly."""
    pool = POOL if scenario.pixels is not None else 1
    rough, labels = [one.rough for one in singles], [one.labels for one in singles]
    arranged = arrange(plan, x, labels[0].flatten(), rough, labels, pool=pool)
    first = singles[0].order
    own = true_records(x.view(*first.shape, *x.shape[1:]), scenario.x, first)
    return matching_accuracy(arranged, [own, *_records(scenario, singles)[1:]])


def run_epochs(
    scenario: Scenario,
    attempt: Attempt,
    lpips: Lpips | None,
    progress: SearchProgress | None,
    checkpoint: Checkpoint,
) -> list[SingleEpoch]:
    """Return what the client sends in each epoch, with what single updates give.

    An epoch has a round for each update: the server steps along its gradient before the next one
    is made, so that each update starts at other weights. The paper leaves open what else
    trains the model between them; here, nothing does.
    """
    params, found = scenario.params, []
    for number in range(attempt.spec.epochs):
        part = checkpoint.part(f"epoch-{number + 1}")
        params, one = _run_epoch(scenario, attempt, params, number, lpips, progress, part)
        found.append(one)
    return found


def _run_epoch(
    scenario: Scenario,
    attempt: Attempt,
    params: Params,
    number: int,
    lpips: Lpips | None,
    progress: SearchProgress | None,
    checkpoint: Checkpoint,
) -> tuple[Params, SingleEpoch]:
    """Run one epoch from these weights; return those after it, and what it gives."""
    client, spec = attempt.client, attempt.spec
    order = _order(scenario, attempt, number)
    x, y = (in_updates(values[order], client) for values in (scenario.x, scenario.y))
    models, rounds = [params], []
    for update in range(len(x)):
        one = _run_round(
            scenario,
            attempt,
            models[-1],
            (x[update : update + 1], y[update : update + 1]),
            seed=spec.seed + number,
            update=update,
            progress=progress,
            checkpoint=checkpoint,
        )
        rounds.append(one)
        models.append(_after_step(models[-1], one[0].grads, float(spec.server_lr or 0.0)))
    sent, rough, found = zip(*rounds, strict=True)
    labels = torch.cat([one.labels for one in rough])
    rows = in_true_order(torch.cat([one.x for one in found]), x)
    return models[-1], SingleEpoch(
        Epoch(
            {name: torch.stack([one[name] for one in models[:-1]]) for name in params},
            {name: torch.cat([one.grads[name] for one in sent]) for name in params},
        ),
        order.view(-1, client.records),
        torch.cat([one.x for one in rough]),
        labels,
        {
            **scenario.scorer(lpips).scores(rows, scenario.x[order]),
            LABEL_ACCURACY: label_accuracy(labels, y),
        },
        tuple(dict.fromkeys(text for one in sent for text in one.warnings())),
    )


def _run_round(
    scenario: Scenario,
    attempt: Attempt,
    params: Params,
    records: tuple[Tensor, Tensor],
    *,
    seed: int,
    update: int,
    progress: SearchProgress | None,
    checkpoint: Checkpoint,
) -> tuple[Sent, Reconstruction, Reconstruction]:
    """Return what the client sends in one round, and the results of the rough and full search."""
    attack = functools.partial(attack_updates, scenario, attempt, params, *records)
    after = digest_of(params)

    def options(name: str) -> AttackOptions:
        part = checkpoint.part(f"{name}-{update + 1}", after=after)
        return AttackOptions(seed, first_target=update, progress=progress, checkpoint=part)

    sent, rough, _ = attack(options("rough"), method=attempt.rough)
    if attempt.rough == attempt.attack:
        return sent, rough, rough
    # An epoch by itself is scored at full length.
    return sent, rough, attack(options("update"))[1]


def _order(scenario: Scenario, attempt: Attempt, number: int) -> Tensor:
    """Return the positions of the records in the order of an epoch; the first keeps their order."""
    count, spec = len(scenario.x), attempt.spec
    if number == 0 or spec.same_batches:
        return torch.arange(count, device=scenario.y.device)
    rng = stream(spec.seed, "epoch", number)
    if scenario.drawn == DISTINCT:
        order = deal_distinct(scenario.y.cpu().numpy(), attempt.client.records, rng)
    else:
        order = rng.permutation(count)
    return torch.from_numpy(order).to(scenario.y.device)


def _after_step(params: Params, grads: Params, lr: float) -> Params:
    """Return the weights after the server's step along one update's gradient, leaf ``[1, *p]``."""
    return {name: leaf - lr * grads[name][0] for name, leaf in params.items()}
