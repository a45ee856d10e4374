"""Rebuilds the records of a client from its updates in several epochs together.

This rule is ours: every record is searched for once, and every update counts once. The paper's rule
is in ``per_sample``.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Task
from leakgauge.inversion.epochs.epoch import Epoch, EpochPlan
from leakgauge.inversion.observed import Reconstruction, SearchProgress
from leakgauge.inversion.search.engine import draw_starts, search
from leakgauge.inversion.search.layer_weights import objective_of
from leakgauge.inversion.search.objective import rescaled
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.runs.checkpoint import Checkpoint


def joint_reconstruct(
    task: Task,
    epochs: Sequence[Epoch],
    plan: EpochPlan,
    settings: SearchSettings,
    *,
    labels: Tensor,
    record: tuple[int, ...],
    low: Tensor,
    high: Tensor,
    seed: int,
    weights: Sequence[float] | None = None,
    start: Tensor | None = None,
    snapshots: int = 0,
    progress: SearchProgress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Return all n records, rebuilt together from every update that holds them. This rule is ours.

    The objective is ``sum_e w_e mean_u D(g_eu(x), g_eu)``, over epochs e and their updates u, each
    gradient at the weights of its update. All updates share all records: a wrong plan therefore
    harms all of them, and a right one helps them more than the paper's rule does
    (``per_sample_reconstruct``). Epochs are separate observations, so their distances add up, and a
    prior weighs less with several epochs, unless its weight is relative. If ``settings`` rescale
    records, the updates of the first epoch decide the factor.

    Args:
        task: the model and its loss.
        epochs: E epochs.
        plan: records of each update.
        settings: the method.
        labels: labels ``[n]`` int64, in the plan's numbering of the records.
        record: shape of a record.
        low: lowest values, broadcast to a record.
        high: highest values, broadcast to a record.
        seed: seed of the start.
        weights: weights w_e; None weighs each epoch by 1.
        start: start ``[1, n, *record]`` of the first restart; None draws it.
        snapshots: see ``reconstruct``.
        progress: see ``reconstruct``.
        checkpoint: see ``reconstruct``.

    Raises:
        InputError: plan, epochs, labels and weights differ in epochs or records; also
            see ``search``.

    Returns:
        One target, ``x [1, n, ...]``.
    """
    shares = [1.0] * len(epochs) if weights is None else list(weights)
    check_plan(plan, epochs=epochs, weights=len(shares))
    check_labels(plan, labels)
    count, measure = len(labels), objective_of(settings.objective, task.model)
    epochs = [one.like_params() for one in epochs]

    def objective(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        return torch.stack([of_records(*one) for one in zip(x, y, strict=True)])

    def of_records(x: Tensor, y: Tensor) -> Tensor:
        total = x.new_zeros(())
        for number, (share, epoch) in enumerate(zip(shares, epochs, strict=True)):
            held = plan.batches(x, epoch=number), plan.batches(y, epoch=number)
            total = total + share * measure(epoch.gradients(task, *held), epoch.grads).mean()
        return total

    like = next(iter(epochs[0].params.values()))
    shape = (count, *record)
    begin = draw_starts(settings, shape, targets=1, seed=seed, like=like, start=start)
    rebuilt = search(
        objective,
        settings,
        begin,
        labels=labels[None],
        held=plan.members.shape[2],
        seed=seed,
        low=low,
        high=high,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
    if not settings.rescale:
        return rebuilt
    y = plan.batches(labels, epoch=0)
    scaled = rescaled(
        plan.batches(rebuilt.x[0], epoch=0),
        lambda x: epochs[0].gradients(task, x, y),
        epochs[0].grads,
        (low, high) if settings.boxed else None,
    )
    return replace(rebuilt, x=scaled.flatten(0, 1)[plan.order(0)][None])


def check_plan(plan: EpochPlan, *, epochs: Sequence[Epoch], weights: int) -> None:
    """Refuse a plan with other epochs or updates, or another number of weights than of epochs."""
    planned, updates = plan.members.shape[:2]
    require(
        planned == len(epochs) == weights,
        f"the plan is of {planned} epochs, {len(epochs)} came with {weights} weights; expected "
        "equal numbers",
    )
    for number, epoch in enumerate(epochs, start=1):
        require(
            len(epoch) == updates,
            f"epoch {number} has {len(epoch)} updates, and the plan is of {updates}; expected "
            "equal numbers",
        )


def check_labels(plan: EpochPlan, labels: Tensor) -> None:
    """Refuse a number of labels that differs from the plan's number of records."""
    require(
        len(labels) == plan.records,
        f"the plan is of {plan.records} records, {len(labels)} labels came; expected one for each",
    )
