"""Runs the question to its end and returns the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.data import Source
from leakgauge.defenses import Defense, none
from leakgauge.gradients.walk import Layer
from leakgauge.inference.adversaries.partial import PartialAttack
from leakgauge.layers.catalog import parse_attack
from leakgauge.layers.run.advising import Stand, advised, on_all
from leakgauge.layers.run.cell import Cell
from leakgauge.layers.run.describing import described
from leakgauge.layers.run.hearing import Heard, best, decoded, encoded, hear
from leakgauge.layers.run.measuring import (
    attack_measurements,
    correlations,
    whole_measurements,
)
from leakgauge.layers.run.observing import observer_of
from leakgauge.layers.run.preparing import Prepared, prepare
from leakgauge.layers.run.scene import Scene, scene_of
from leakgauge.layers.run.training import trained
from leakgauge.layers.words import ALL, QUESTION
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import BALANCED_ACCURACY
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import Kept
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere
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
    cell = Cell(prepared.dataset, prepared.label, str(spec.secret), spec.seed)
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
    prepared: Prepared
    params: Params
    folder: WorkFolder
    progress: Progress
    workers: int | None

    def attacked(self, cell: Cell) -> Iterable[Measurement]:
        """Yield the figures of each layer, of all together, and of the advice."""
        scene, layers = self._behind(none()), self.prepared.layers
        singles = {}
        for number, layer in enumerate(layers, start=1):
            heard = self._hear(scene, [layer], layer.name)
            singles[layer.name] = best(heard)
            yield from attack_measurements(
                self.spec, scene, cell, heard, singles[layer.name], layer
            )
            self.progress.step(f"{QUESTION}: attacking layers", number, len(layers))
        whole = on_all(self._hear(scene, layers, ALL), [*singles.values()])
        yield from whole_measurements(self.spec, scene, cell, whole)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 0, 1)
        stand = Stand(layers, scene, singles, whole, self._hear, self._behind)
        yield from advised(self.spec, stand, cell)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 1, 1)

    def _behind(self, defense: Defense) -> Scene:
        names = [name for layer in self.prepared.layers for name in layer.parameters]
        observer = observer_of(self.spec, self.prepared.task, self.params, names, defense)
        return scene_of(
            self.spec,
            self.prepared,
            self.params,
            observer,
            self.folder,
            self.progress,
            workers=self.workers,
        )

    def _hear(self, scene: Scene, layers: Sequence[Layer], sees: str) -> list[Heard]:
        """Let every attack judge by some layers; what a kill left said is read back."""
        parameters = tuple(name for layer in layers for name in layer.parameters)
        after = f"{digest_of(self.params)} {scene.defense} {' '.join(parameters)}"
        found = []
        for text in self.spec.adversaries:
            attack = parse_attack(text, batches=self.spec.shadow_batches)
            name = f"heard/{scene.defense}/{sees or 'model'}/{'+'.join(parameters)}/{attack.name}"
            kept: Kept | None = self.folder.arrays(name, after=after)
            if kept is None:
                seed = self.spec.seed
                part = PartialAttack(attack, parameters, self.spec.coordinates, seed)
                kept = encoded(hear(scene, part, sees, seed=seed))
                self.folder.keep_arrays(name, *kept, after=after)
            found.append(decoded(kept))
        return found


def _utility(
    spec: LayersSpec, prepared: Prepared, params: Params, cell: Cell
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
