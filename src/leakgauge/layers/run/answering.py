"""Runs the question to its end and returns the answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.data import Source
from leakgauge.defenses import Defense, none
from leakgauge.gradients import params_of
from leakgauge.gradients.walk import Layer
from leakgauge.inference.adversaries.part import Part
from leakgauge.layers.catalog import ALL, QUESTION, parse_attack
from leakgauge.layers.run.advising import AdviceInputs, advised, on_all
from leakgauge.layers.run.describing import described
from leakgauge.layers.run.judging import LayerJudgement, best, decoded, encoded, judge_layers
from leakgauge.layers.run.measuring import (
    LayerCell,
    attack_measurements,
    correlations,
    whole_measurements,
)
from leakgauge.layers.run.observing import AttackerView, attacker_view, observer_of
from leakgauge.layers.run.preparing import LayersPrepared, prepare
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import BALANCED_ACCURACY
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import Kept
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.catalog import parse_optimizer
from leakgauge.training.federation import federation
from leakgauge.training.protocol import FEDAVG, FEDSGD
from leakgauge.training.utility import utility_of

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec


def answer(
    spec: LayersSpec,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train, see batches once, attack each layer, measure the layers, and advise.

    What a kill left finished is read back: the training, what is seen of batches, and what attacks
    say.

    Raises:
        InputError: the data do not fit, or the training diverges.
    """
    prepared = prepare(spec, source)
    folder.guard(elsewhere(prepared.run))
    for note in prepared.run.notes:
        progress.note(note)
    for warning in prepared.run.warnings:
        progress.warn(warning)
    params = trained(spec, prepared, folder, progress)
    cell = LayerCell(prepared.dataset, prepared.label, str(spec.secret), spec.seed)
    stage = _Stage(spec, prepared, params, folder, progress, workers)
    measurements, missing = described(spec, prepared, params, cell)
    measurements += list(stage.attacked(cell))
    measurements += list(correlations(measurements, cell))
    measurements += list(_utility(spec, prepared, params, cell))
    return Answer(prepared.run, measurements, tuple(missing))


@dataclass(frozen=True, eq=False)
class _Stage:
    """What all attacks of a run share."""

    spec: LayersSpec
    prepared: LayersPrepared
    params: Params
    folder: WorkFolder
    progress: Progress
    workers: int | None

    def attacked(self, cell: LayerCell) -> Iterable[Measurement]:
        """Yield the figures of each layer, of all together, and of the advice."""
        view, layers = self._behind(none()), self.prepared.layers
        singles = {}
        for number, layer in enumerate(layers, start=1):
            judgements = self._hear(view, [layer], layer.name)
            singles[layer.name] = best(judgements)
            yield from attack_measurements(
                self.spec, view, cell, judgements, singles[layer.name], layer
            )
            self.progress.step(f"{QUESTION}: attacking layers", number, len(layers))
        whole = on_all(self._hear(view, layers, ALL), [*singles.values()])
        yield from whole_measurements(self.spec, view, cell, whole)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 0, 1)
        stand = AdviceInputs(layers, view, singles, whole, self._hear, self._behind)
        yield from advised(self.spec, stand, cell)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 1, 1)

    def _behind(self, defense: Defense) -> AttackerView:
        names = [name for layer in self.prepared.layers for name in layer.parameters]
        observer = observer_of(self.spec, self.prepared.task, self.params, names, defense)
        return attacker_view(
            self.spec,
            self.prepared,
            self.params,
            observer,
            self.folder,
            self.progress,
            workers=self.workers,
        )

    def _hear(self, view: AttackerView, layers: Sequence[Layer], sees: str) -> list[LayerJudgement]:
        """Let every attack judge by some layers; what a kill left said is read back."""
        parameters = tuple(name for layer in layers for name in layer.parameters)
        after = f"{digest_of(self.params)} {view.defense} {' '.join(parameters)}"
        found = []
        for text in self.spec.adversaries:
            attack = parse_attack(text, batches=self.spec.shadow_batches)
            name = f"heard/{view.defense}/{sees or 'model'}/{'+'.join(parameters)}/{attack.name}"
            kept: Kept | None = self.folder.arrays(name, after=after)
            if kept is None:
                seed = self.spec.seed
                part = Part(attack, parameters, self.spec.coordinates, seed)
                kept = encoded(judge_layers(view, part, sees, seed=seed))
                self.folder.keep_arrays(name, *kept, after=after)
            found.append(decoded(kept))
        return found


def _utility(
    spec: LayersSpec, prepared: LayersPrepared, params: Params, cell: LayerCell
) -> Iterable[Measurement]:
    rng = stream(spec.seed, QUESTION, "utility")
    rows = prepared.sides.test.to(prepared.data.y.device)
    found = utility_of(prepared.task, params, prepared.data.rows(rows), rng=rng)
    if found is None:
        return
    yield cell.measurement(found.metric, found.estimate, chance=found.chance)
    if found.balanced is not None:
        # the report speaks of this one: of glasses, which few wear, accuracy says little
        yield cell.measurement(BALANCED_ACCURACY, found.balanced, chance=1 / found.classes)


def trained(
    spec: LayersSpec, prepared: LayersPrepared, folder: WorkFolder, progress: Progress
) -> Params:
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


def rounds(spec: LayersSpec, prepared: LayersPrepared) -> Iterator[Params]:
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
