"""Runs inference to its end and returns the answer."""

from dataclasses import replace

from leakgauge.data import Source
from leakgauge.inference.run.prepare import prepare
from leakgauge.inference.run.resumable import ResumableStage
from leakgauge.inference.settings import InferenceSettings
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.stages import run_stages
from leakgauge.runs.work import WorkFolder


def answer(
    spec: InferenceSettings,
    source: Source,
    folder: WorkFolder,
    progress: Progress,
    *,
    workers: int | None = None,
) -> Answer:
    """Train, attack and judge every stage; rounds that a kill left finished are read back.

    Raises:
        InputError: the data do not fit, or no stage could be played to its end.
    """
    prepared = prepare(spec, source)
    folder.guard(_elsewhere(prepared.run))
    for note in prepared.run.notes:
        progress.note(note)
    for warning in prepared.run.warnings:
        progress.warn(warning)
    stages = [ResumableStage(one, prepared.dataset, prepared.label) for one in prepared.stages]
    measurements, missing = run_stages(folder, stages, workers=workers, progress=progress)
    return Answer(prepared.run, measurements, (*prepared.refused, *missing))


def _elsewhere(run: Run) -> Run:
    """The run without where its data lie, which changes no figure; their fingerprint counts."""
    settings = {name: value for name, value in run.settings.items() if name != "data"}
    return replace(run, settings=settings)
