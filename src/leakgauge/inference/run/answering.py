"""Run inference stage by stage, and return the answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from leakgauge.core.checks import InputError
from leakgauge.gradients import params_of
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.run.exposing import record_tests
from leakgauge.inference.run.first_estimate import first_estimate, in_words, worth_it
from leakgauge.inference.run.footprint import footprint
from leakgauge.inference.run.measuring import measure
from leakgauge.inference.run.over_seeds import combined
from leakgauge.inference.run.preparing import InferencePrepared
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.run.rounds import RoundResults, attack_jointly, attack_round
from leakgauge.inference.run.stage import GameStage
from leakgauge.inference.run.training import trajectory
from leakgauge.results.measurements import ACCUMULATED, Measurement
from leakgauge.results.record_tests import RecordTest, keep_record_tests
from leakgauge.runs.parts import Kept, StageState, begin, run_stages
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder, elsewhere

Array = NDArray[Any]


def audit(stage: GameStage, *, dataset: str = "data", label: str = "label") -> list[Measurement]:
    """Return the measurements of one stage, run in this process without files.

    Args:
        stage: a stage from ``leakgauge.inference.run.stage.make_stage``.
        dataset: name of the data in the measurements.
        label: name of the label in the measurements.
    """
    *starts, final = trajectory(stage)
    rounds = [attack_round(stage, number, params) for number, params in enumerate(starts, start=1)]
    jointly = attack_jointly(stage, starts)
    return measure(stage, rounds, final, dataset=dataset, label=label, jointly=jointly)


@dataclass(frozen=True, eq=False)
class ResumableStage:
    """A ``leakgauge.runs.parts.Stage`` with the parameters before each round as its states.

    Attributes:
        stage: game, trials and adversaries.
        dataset: name of the data in the measurements.
        label: name of the label in the measurements.
        alone: whether the run has one seed only; otherwise the name contains the seed.
        tests: gets the test of single records when the stage is judged.
    """

    stage: GameStage
    dataset: str
    label: str
    alone: bool = True
    tests: list[RecordTest] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Game and defense, and the seed if there are several."""
        seed = "" if self.alone else f", seed {self.stage.spec.seed}"
        return f"{self.stage.name}{seed}"

    @property
    def steps(self) -> int:
        """The number of rounds."""
        return self.stage.spec.rounds

    @property
    def memory(self) -> int:
        """Bytes that a round needs in addition to the process itself."""
        return footprint(self.stage)

    @property
    def first(self) -> StageState:
        """The parameters before the first round."""
        return params_of(self.stage.task.model)

    def states(self, kept: Sequence[StageState]) -> Iterator[StageState]:
        """Continue training; yield the parameters before each further round and after the last."""
        if not kept:
            return trajectory(self.stage)
        return trajectory(self.stage, after=len(kept) - 1, params=kept[-1])

    def step(self, number: int, state: StageState) -> Kept:
        """Return the results of the attacks on one round."""
        return encoded(attack_round(self.stage, number, state))

    def close(self, states: Sequence[StageState], progress: Callable[[int], None]) -> Kept | None:
        """Return the results of attacks on all rounds at once; None without such attacks."""
        together = attack_jointly(self.stage, states, progress=progress)
        return _encoded_together(together) if together else None

    def judge(
        self, steps: Sequence[Kept], closing: Kept | None, final: StageState
    ) -> Sequence[Measurement]:
        """Score every adversary and the trained model, and test single records."""
        leading: dict[str, tuple[str, RunReading]] = {}

        def lead(knowledge: str, adversary: str, reading: RunReading) -> None:
            leading[knowledge] = adversary, reading

        figures = measure(
            self.stage,
            [decoded(kept) for kept in steps],
            final,
            dataset=self.dataset,
            label=self.label,
            jointly=_decoded_together(closing) if closing else {},
            lead=lead,
        )
        self.tests.extend(record_tests(self.stage, leading, alone=self.alone))
        return figures


def _encoded_together(together: Mapping[str, RunReading]) -> Kept:
    posteriors = {key: one.log_posterior for key, one in together.items()}
    held_out = {key: one.held_out for key, one in together.items() if one.held_out is not None}
    return _arrays(posteriors, held_out), {"keys": list(together)}


def _decoded_together(kept: Kept) -> dict[str, RunReading]:
    arrays, about = kept
    return {
        key: RunReading(ACCUMULATED, arrays[f"posterior/{key}"], _held_out(arrays, key))
        for key in about["keys"]
    }


def encoded(results: RoundResults) -> Kept:
    """Return the results of a round as arrays and plain values."""
    about = {"details": dict(results.details), "seconds": dict(results.seconds)}
    arrays = _arrays(results.log_posterior, results.held_out)
    return arrays, {**about, "held_out": list(results.held_out)}


def decoded(kept: Kept) -> RoundResults:
    """Return the results of a round from the output of ``encoded``."""
    arrays, about = kept
    return RoundResults(
        {key: arrays[f"posterior/{key}"] for key in about["details"]},
        about["details"],
        about["seconds"],
        {key: _held_out(arrays, key) for key in about["held_out"]},
    )


def _arrays(posteriors: Mapping[str, Array], held_out: Mapping[str, HeldOut]) -> dict[str, Array]:
    """Return posteriors and scores of held-out batches by the names of their arrays."""
    arrays = {f"posterior/{key}": array for key, array in posteriors.items()}
    for key, one in held_out.items():
        arrays |= {f"held/{key}": one.log_odds, f"held secret/{key}": one.secret}
    return arrays


def _held_out(arrays: Mapping[str, Array], key: str) -> HeldOut:
    return HeldOut(arrays[f"held/{key}"], arrays[f"held secret/{key}"])


def answer(
    prepared: InferencePrepared,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train, attack and measure every stage; finished rounds of a killed run are read back.

    With several seeds every stage runs with each, and the figures are means over the seeds.

    Raises:
        InputError: no stage could be completed.
    """
    run = prepared.run
    begin(folder, run, progress, identity=elsewhere(run))
    first = prepared.stages[0]
    if worth_it(first):
        with suppress(InputError):  # the run itself says why
            progress.early(lambda: in_words(first, first_estimate(first)))
    alone = prepared.spec.seeds == 1
    stages = [
        ResumableStage(one, prepared.source.name, prepared.label, alone=alone)
        for one in prepared.stages
    ]
    measurements, missing = run_stages(folder, stages, workers=workers, progress=progress)
    keep_record_tests(folder.files, [test for one in stages for test in one.tests])
    return Answer(run, combined(measurements), (*prepared.refused, *missing))
