"""Trains the model by rounds, and returns the global models that the attacker saved."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from leakgauge.core.types import Params
from leakgauge.gradients import params_of
from leakgauge.layers.catalog import QUESTION
from leakgauge.layers.run.preparing import LayersPrepared
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.parts import once_tensors
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder, digest_of
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import federation
from leakgauge.training.protocol import FEDAVG, FEDSGD


@dataclass(frozen=True, eq=False)
class Snapshots:
    """Global models that the attacker saved, in the order of their rounds.

    Attributes:
        models: parameters of each model, by name.
    """

    models: tuple[Params, ...]

    @property
    def first(self) -> Params:
        """The model after ``rounds`` rounds, on which everything but the attacks is measured."""
        return self.models[0]

    @functools.cached_property
    def digest(self) -> str:
        """Digest of all models."""
        return " ".join(digest_of(model) for model in self.models)


def saved_snapshots(prepared: LayersPrepared, folder: WorkFolder, progress: Progress) -> Snapshots:
    """Return the model after ``rounds`` rounds, and after each further round; kept ones are read.

    Raises:
        InputError: the training diverges.

    References:
        Mo et al., 2021, sections 3.3 and 5.
    """
    spec, start = prepared.spec, params_of(prepared.task.model)

    def train() -> Params:
        saved: list[Params] = [] if spec.rounds else [start]
        for number, params in enumerate(rounds(prepared), start=1):
            if number >= spec.rounds:
                saved.append(params)
            progress.step(f"{QUESTION}: training", number, rounds_of(spec))
        return _by_number(saved)

    like = _by_number([start] * spec.snapshots)
    kept = once_tensors(folder, "snapshots", train, like=like)
    return Snapshots(
        tuple({name: kept[f"{one}/{name}"] for name in start} for one in range(spec.snapshots))
    )


def _by_number(models: Sequence[Params]) -> dict[str, Tensor]:
    return {
        f"{one}/{name}": leaf for one, params in enumerate(models) for name, leaf in params.items()
    }


def rounds_of(spec: LayersSpec) -> int:
    """Return the number of rounds until the attacker has saved its last snapshot."""
    return spec.rounds + spec.snapshots - 1


def rounds(prepared: LayersPrepared) -> Iterator[Params]:
    """Yield the global parameters after each round of FedSGD, or of FedAvg."""
    spec, sides = prepared.spec, prepared.sides
    if rounds_of(spec) == 0:
        return
    parts = (sides.private, sides.attacker, *sides.others)
    people = [Participant(prepared.rows(rows)) for rows in parts]
    state = State.of(prepared.task.model)
    for one in federation(prepared.task, state, people, protocol_of(spec), seed=spec.seed):
        yield {name: one.state.shared[name] for name in params_of(prepared.task.model)}


def protocol_of(spec: LayersSpec) -> Protocol:
    """Return the protocol of the paper, or FedAvg with several local steps, which it lacks.

    References:
        Mo et al., 2021, section 5: FedSGD, learning rate 0.01 without momentum, batches of 32.
    """
    averages = spec.local_steps > 1
    return Protocol(
        rounds=rounds_of(spec),
        kind=FEDAVG if averages else FEDSGD,
        lr=spec.lr,
        optimizer=parse_optimizer(spec.optimizer, lr=spec.lr),
        steps=spec.local_steps if averages else None,
        batch_size=spec.batch_size,
        weighted=False,
    )
