"""Runs one attack on updates: labels, knowledge of defense and training, search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Grads, Params, Task
from leakgauge.inversion.labels.inference import Method, infer_labels
from leakgauge.inversion.search.adaptive import adapted_settings, smoother
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.statistics import Statistics, StatisticsPrior
from leakgauge.inversion.search.targets import Prior, Progress, Reconstruction
from leakgauge.inversion.words import ASSUMED_LR, OPTIMIZER, RATE
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.catalog import SGD
from leakgauge.training.client import Client
from leakgauge.training.local import draws, in_training, repeatable
from leakgauge.training.sending import Sent

WITHOUT_DROPOUT = (
    "the client's dropout draws masks that the attacker does not know; it simulates the model "
    "without dropout"
)


def rate_assumed(lr: float) -> str:
    """Return in a sentence what an attacker assumes of a rate that it does not know."""
    return f"the attacker does not know the local learning rate, and assumes {lr:g} at each step"


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Attacker knowledge besides the update and the model.

    Attributes:
        labels: the true ones ``[T, S * B]``; None where it has to infer them.
        low: lowest values of a record, broadcast to it, in units of the model's input.
        high: highest values of a record, likewise.
        defense: whether it knows the client's defense, and adapts to it.
        simulate: whether it simulates the client's local steps; else it takes the update for the
            gradient of one batch.
        infer: how it infers labels; with ``"auto"``, a method that searches for labels does that.
        unknown: what it does not know of the client's training: ``"rate"``, ``"optimizer"``.
        assumed_lr: the rate that it assumes then; None for ``ASSUMED_LR``.
        statistics: of the batches in the BatchNorm layers, where it has any.
    """

    low: Tensor
    high: Tensor
    labels: Tensor | None = None
    defense: bool = False
    simulate: bool = False
    infer: Method = "auto"
    unknown: tuple[str, ...] = ()
    assumed_lr: float | None = None
    statistics: Statistics | None = None


def attack(
    task: Task,
    params: Params,
    sent: Sent,
    settings: Settings,
    client: Client,
    known: Knowledge,
    *,
    record: tuple[int, ...],
    seed: int,
    first_target: int = 0,
    snapshots: int = 0,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> Reconstruction:
    """Rebuild the records of T clients.

    Args:
        task: the model and its loss.
        params: where every client started.
        sent: from ``send``.
        settings: the method.
        client: how they trained; steps and batch sizes are part of the protocol, so known, and so
            are rate and optimizer unless ``known`` says otherwise.
        known: what else the attacker knows.
        record: shape of a record.
        seed: draws the starts, and the noise that labels are inferred with.
        first_target: as for ``reconstruct``.
        snapshots: as for ``reconstruct``.
        progress: as for ``reconstruct``.
        checkpoint: as for ``reconstruct``.

    Raises:
        InputError: labels cannot be inferred from this gradient, the steps cannot be simulated, or
            as ``reconstruct``.
    """
    task = attacked_task(task, client)
    local = assumed_steps(client, known)
    grads = _read(sent, local, known)
    labels = known.labels
    if labels is None and (known.infer != "auto" or not settings.joint_labels):
        labels = infer_labels(
            task,
            params,
            grads,
            client.records,
            method=known.infer,
            record=record,
            rng=stream(seed, "labels"),
        ).labels
    if known.defense:
        settings = adapted_settings(settings, client.defense, task.model, _as_sent(sent))
    settings = settings_for(settings, local, unknown=known.unknown)
    return reconstruct(
        task,
        params,
        grads,
        # Labels that are known need no search.
        replace(settings, joint_labels=False) if labels is not None else settings,
        shape=(client.records, *record),
        seed=seed,
        first_target=first_target,
        labels=labels,
        low=known.low,
        high=known.high,
        local=local if known.simulate else None,
        prior=_prior(task, params, settings, client, known),
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )


def attacked_task(task: Task, client: Client) -> Task:
    """Return the task as the attacker runs it: in the client's mode, but without dropout.

    The client's dropout masks are random, and the attacker does not know them.
    """
    return repeatable(in_training(task)) if client.training else task


def assumed_steps(client: Client, known: Knowledge) -> LocalSteps | None:
    """Return the client's steps as the attacker takes them; None where one sent a gradient."""
    if client.sends_gradient:
        several = client.summed > 1
        return LocalSteps(1, client.local_lr, clients=client.summed) if several else None
    optimizer = client.optimizer
    if OPTIMIZER in known.unknown or (not known.simulate and not client.is_known):
        optimizer = SGD
    rates = client.recipe.rates
    if RATE in known.unknown:
        rates = (known.assumed_lr or ASSUMED_LR,) * client.steps
    return LocalSteps(
        client.local_steps,
        rates[0],
        client.epochs,
        optimizer=optimizer,
        rates=rates,
        clients=client.summed,
    )


def assumptions(task: Task, client: Client, known: Knowledge) -> tuple[str, ...]:
    """Return what the attacker assumes of the training that it does not know, one sentence each."""
    said, local = [], assumed_steps(client, known)
    if local is not None and OPTIMIZER in known.unknown:
        said.append("the attacker does not know the optimizer, and assumes plain SGD")
    if local is not None and RATE in known.unknown:
        said.append(rate_assumed(local.lr))
    if known.simulate and client.epochs > 1 and client.reshuffle:
        said.append(
            "the client shuffles its records in each local epoch; the attacker does not know the "
            "orders, and assumes that of the first"
        )
    if client.training and any(map(draws, in_training(task).model.modules())):
        said.append(WITHOUT_DROPOUT)
    return tuple(said)


def _as_sent(sent: Sent) -> Grads:
    """Return the gradients or changes on the scale on which the defense changed them."""
    if not sent.updates:
        return sent.grads
    return {name: torch.stack([one.values[name] for one in sent.updates]) for name in sent.grads}


def _read(sent: Sent, local: LocalSteps | None, known: Knowledge) -> Grads:
    """Return the updates on the scale of a gradient, as the attacker reads them."""
    if local is None or not known.unknown or not sent.updates:
        return sent.grads
    each = [local.recipe.as_gradient(one.before, one.values) for one in sent.updates]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def settings_for(
    settings: Settings, local: LocalSteps | None, *, unknown: Sequence[str] = ()
) -> Settings:
    """Return the search against the update of these steps; None stands for a gradient.

    The size of an update tells nothing where the rate is not known. Steps of Adam and its like
    leave little more than signs of coordinates, as a defense by signs does, and need its prior.
    """
    if local is None:
        return settings
    if RATE in unknown:
        settings = replace(settings, rescale=False)
    return settings if local.recipe.rule.linear else smoother(settings)


def _prior(
    task: Task, params: Params, settings: Settings, client: Client, known: Knowledge
) -> Prior | None:
    """Return the weighted prior of the batches' statistics, where the attacker knows any."""
    if known.statistics is None or not settings.batch_norm:
        return None
    alone = not (known.simulate or client.sends_gradient)
    parts = (1, 1, 1) if alone else (client.local_steps, client.epochs, client.summed)
    return StatisticsPrior(task, params, known.statistics, *parts, weight=settings.batch_norm)
