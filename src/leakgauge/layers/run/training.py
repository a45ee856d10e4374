"""The federated training before the attack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from leakgauge.core.types import Params
from leakgauge.gradients import params_of
from leakgauge.layers.run.preparing import Prepared
from leakgauge.layers.words import QUESTION
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import federation
from leakgauge.training.protocol import FEDAVG, FEDSGD

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec


def trained(spec: LayersSpec, prepared: Prepared, folder: WorkFolder, progress: Progress) -> Params:
    """Return the parameters after the last round; those that a kill left are read back.

    Raises:
        InputError: the training diverges.
    """
    first = params_of(prepared.task.model)
    kept = folder.tensors("trained", like=first)
    if kept is not None:
        return kept
    last: Params = first
    for number, params in enumerate(rounds(spec, prepared), start=1):
        last = params
        progress.step(f"{QUESTION}: training", number, spec.rounds)
    folder.keep_tensors("trained", last)
    return last


def rounds(spec: LayersSpec, prepared: Prepared) -> Iterator[Params]:
    """Yield the global parameters after each round of FedSGD, or of FedAvg."""
    if spec.rounds == 0:
        return
    device = prepared.data.y.device
    sides = prepared.sides
    people = [
        Participant(prepared.data.rows(rows.to(device)))
        for rows in (sides.private, sides.attacker, *sides.others)
    ]
    state = State.of(prepared.task.model)
    for one in federation(prepared.task, state, people, protocol_of(spec), seed=spec.seed):
        yield {name: one.state.shared[name] for name in params_of(prepared.task.model)}


def protocol_of(spec: LayersSpec) -> Protocol:
    """Return the protocol of the paper; with several local steps FedAvg, which is not in it.

    References:
        Mo et al., 2021, section 5: FedSGD, learning rate 0.01 without momentum, batches of 32.
    """
    averages = spec.local_steps > 1
    return Protocol(
        rounds=spec.rounds,
        kind=FEDAVG if averages else FEDSGD,
        lr=spec.lr,
        optimizer=parse_optimizer(spec.optimizer, lr=spec.lr),
        steps=spec.local_steps if averages else None,
        batch_size=spec.batch_size,
        weighted=False,
    )
