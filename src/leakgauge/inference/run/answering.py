"""Runs inference to its end and returns the answer."""

from collections.abc import Sequence
from dataclasses import replace

from leakgauge.data import Source
from leakgauge.inference.run.over_seeds import combined
from leakgauge.inference.run.prepare import prepare
from leakgauge.inference.run.resumable import ResumableStage
from leakgauge.inference.settings import InferenceSettings
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import run_stages
from leakgauge.runs.work import WorkFolder, elsewhere


def answer(
    spec: InferenceSettings,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train, attack and judge every stage; rounds that a kill left finished are read back.

    With several seeds every stage is played with each, and the figures are means over the seeds.

    Raises:
        InputError: the data do not fit, or no stage could be played to its end.
    """
    seeds = range(spec.seed, spec.seed + spec.seeds)
    each = [prepare(replace(spec, seed=seed), source) for seed in seeds]
    run = _together([one.run for one in each])
    folder.guard(elsewhere(run))
    for note in run.notes:
        progress.note(note)
    for warning in run.warnings:
        progress.warn(warning)
    stages = [
        ResumableStage(one, prepared.dataset, prepared.label, alone=len(each) == 1)
        for prepared in each
        for one in prepared.stages
    ]
    measurements, missing = run_stages(folder, stages, workers=workers, progress=progress)
    refused = dict.fromkeys(text for one in each for text in one.refused)
    return Answer(run, combined(measurements), (*refused, *missing))


def _together(runs: Sequence[Run]) -> Run:
    """The run of the first seed, with the notes and warnings of all."""
    return replace(
        runs[0],
        notes=tuple(dict.fromkeys(text for one in runs for text in one.notes)),
        warnings=list(dict.fromkeys(text for one in runs for text in one.warnings)),
    )
