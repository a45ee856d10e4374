"""Runs one attack on updates: labels, knowledge of the defense, search."""

from dataclasses import dataclass, replace

from torch import Tensor

from leakgauge.core.rng import stream
from leakgauge.core.types import Params, Task
from leakgauge.inversion.labels.inference import Method, infer_labels
from leakgauge.inversion.search.adaptive import adapted_settings
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.targets import Progress, Reconstruction
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.training.client import Client, Sent


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
    """

    low: Tensor
    high: Tensor
    labels: Tensor | None = None
    defense: bool = False
    simulate: bool = False
    infer: Method = "auto"


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
        client: how they trained; rates, steps and batch sizes are part of the protocol, so known.
        known: what else the attacker knows.
        record: shape of a record.
        seed: draws the starts, and the noise that labels are inferred with.
        first_target: as for ``reconstruct``.
        snapshots: as for ``reconstruct``.
        progress: as for ``reconstruct``.
        checkpoint: as for ``reconstruct``.

    Raises:
        InputError: labels cannot be inferred from this gradient; or as ``reconstruct``.
    """
    labels = known.labels
    if labels is None and (known.infer != "auto" or not settings.joint_labels):
        labels = infer_labels(
            task,
            params,
            sent.grads,
            client.records,
            method=known.infer,
            record=record,
            rng=stream(seed, "labels"),
        ).labels
    if known.defense:
        settings = adapted_settings(settings, client.defense, task.model)
    several = client.local_steps > 1 and known.simulate
    return reconstruct(
        task,
        params,
        sent.grads,
        # Labels that are known need no search.
        replace(settings, joint_labels=False) if labels is not None else settings,
        shape=(client.records, *record),
        seed=seed,
        first_target=first_target,
        labels=labels,
        low=known.low,
        high=known.high,
        local=LocalSteps(client.local_steps, client.local_lr) if several else None,
        snapshots=snapshots,
        progress=progress,
        checkpoint=checkpoint,
    )
