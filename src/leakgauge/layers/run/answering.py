"""Trains the model, runs all attacks and returns the answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from leakgauge.core.rng import stream
from leakgauge.core.types import Params
from leakgauge.defenses import Defense, none
from leakgauge.gradients.walk import Layer
from leakgauge.inference.adversaries.partial import PartialAttack
from leakgauge.layers.catalog import ALL, QUESTION, parse_attack
from leakgauge.layers.run.advising import AdviceInputs, advised, on_all
from leakgauge.layers.run.describing import described
from leakgauge.layers.run.judging import LayerJudgement, best, decoded, judge_layers
from leakgauge.layers.run.measuring import (
    attack_measurements,
    correlations,
    whole_measurements,
)
from leakgauge.layers.run.observing import AttackerView, attacker_view
from leakgauge.layers.run.preparing import LayersPrepared
from leakgauge.layers.run.training import Snapshots, saved_snapshots
from leakgauge.results.measurements import CellContext, Measurement
from leakgauge.results.scores import BALANCED_ACCURACY
from leakgauge.runs.parts import begin, once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder, elsewhere
from leakgauge.training.utility import utility_of


def answer(
    prepared: LayersPrepared, folder: WorkFolder, progress: Progress, *, workers: int | None = None
) -> Answer:
    """Train, observe batches once, attack and measure each layer, and advise.

    After a kill the finished parts are read back: the training, the observed batches, and the
    log-odds of attacks.

    Raises:
        InputError: the data do not fit, or the training diverges.
    """
    begin(folder, prepared.run, progress, identity=elsewhere(prepared.run))
    snapshots = saved_snapshots(prepared, folder, progress)
    params = snapshots.first
    label = prepared.run.settings["label"]
    cell = CellContext(
        question=QUESTION,
        dataset=prepared.source.name,
        label=label,
        secret=prepared.secret,
        seed=prepared.spec.seed,
    )
    stage = _Stage(prepared, snapshots, folder, progress, workers)
    measurements, missing = described(prepared, params, cell)
    measurements += list(stage.attacked(cell))
    measurements += list(correlations(measurements, cell))
    measurements += list(_utility(prepared, params, cell))
    return Answer(prepared.run, measurements, tuple(missing))


@dataclass(frozen=True, eq=False)
class _Stage:
    """Everything that the attacks of a run share."""

    prepared: LayersPrepared
    snapshots: Snapshots
    folder: WorkFolder
    progress: Progress
    workers: int | None

    def attacked(self, cell: CellContext) -> Iterable[Measurement]:
        """Yield the figures of each layer, of all together, and of the advice."""
        spec, view, layers = self.prepared.spec, self._view_under(none()), self.prepared.layers
        singles = {}
        for number, layer in enumerate(layers, start=1):
            judgements = self._judge(view, [layer], layer.name)
            singles[layer.name] = best(judgements)
            yield from attack_measurements(spec, view, cell, judgements, singles[layer.name], layer)
            self.progress.step(f"{QUESTION}: attacking layers", number, len(layers))
        whole = on_all(self._judge(view, layers, ALL), [*singles.values()])
        yield from whole_measurements(spec, view, cell, whole)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 0, 1)
        inputs = AdviceInputs(layers, view, singles, whole, self._judge, self._view_under)
        yield from advised(spec, inputs, cell)
        self.progress.step(f"{QUESTION}: looking for layers to protect", 1, 1)

    def _view_under(self, defense: Defense) -> AttackerView:
        return attacker_view(
            self.prepared,
            self.snapshots,
            defense,
            self.folder,
            self.progress,
            workers=self.workers,
        )

    def _judge(
        self, view: AttackerView, layers: Sequence[Layer], sees: str
    ) -> list[LayerJudgement]:
        """Return the log-odds of every attack on some layers; kept ones are read back."""
        spec = self.prepared.spec
        parameters = tuple(name for layer in layers for name in layer.parameters)
        after = f"{self.snapshots.digest} {view.defense} {' '.join(parameters)}"
        found = []
        for text in spec.adversaries:
            attack = parse_attack(text, batches=spec.shadow_batches)
            name = f"heard/{view.defense}/{sees or 'model'}/{'+'.join(parameters)}/{attack.name}"
            part = PartialAttack(attack, parameters, spec.coordinates, spec.seed)
            make = partial(judge_layers, view, part, sees, seed=spec.seed)
            found.append(decoded(once(self.folder, name, make, after=after)))
        return found


def _utility(prepared: LayersPrepared, params: Params, cell: CellContext) -> Iterable[Measurement]:
    rng = stream(prepared.spec.seed, QUESTION, "utility")
    found = utility_of(prepared.task, params, prepared.rows(prepared.sides.test), rng=rng)
    if found is None:
        return
    yield cell.measurement(found.metric, found.estimate, chance=found.chance)
    if found.balanced is not None:
        # the report uses the balanced accuracy, as accuracy is misleading for rare classes
        yield cell.measurement(BALANCED_ACCURACY, found.balanced, chance=1 / found.classes)
