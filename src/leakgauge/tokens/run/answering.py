"""Trains the model, measures all checkpoints and returns the answer."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from leakgauge.core.checks import require
from leakgauge.results.measurements import CellContext, Measurement
from leakgauge.runs.parts import Kept, begin, each_once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere
from leakgauge.tokens.run.attacking import attacked
from leakgauge.tokens.run.measuring import CheckpointFigure, measured
from leakgauge.tokens.run.preparing import TokensPrepared
from leakgauge.tokens.run.seeing import what_is_seen
from leakgauge.tokens.run.summarising import peak_of, summarised
from leakgauge.tokens.run.training import ModelCheckpoint, trained
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION, STREAM_TO_CHECKPOINT

JobResult = dict[str, Any]
CheckpointMeasure = Callable[[TokensPrepared, ModelCheckpoint], JobResult]


def answer(
    prepared: TokensPrepared, folder: WorkFolder, progress: Progress, *, workers: int | None = None
) -> Answer:
    """Train the model, and measure it at each checkpoint.

    After a kill the finished parts are read back: the model at its checkpoints, and their figures.

    Raises:
        InputError: the data do not fit, the training diverges, or nothing could be measured.
    """
    spec = prepared.spec
    begin(folder, prepared.run, progress, identity=elsewhere(prepared.run))
    course = [
        at
        for text in spec.defenses
        for at in _taught(spec, trained(prepared, text, folder, progress))
    ]
    jobs: dict[str, CheckpointMeasure] = {"figures": measured}
    if spec.images and prepared.are_images:
        jobs["attack"] = attacked
    results = _results(prepared, course, jobs, folder, progress, workers)
    missing = tuple(dict.fromkeys(text for _, one in results for text in one["missing"]))
    peaks = {text: peak_of(spec, _figures(results, text)) for text in spec.defenses}
    bare = _without_source(prepared)
    seen = what_is_seen(bare, course, peaks, folder, progress, workers)
    measurements: list[Measurement] = []
    for text in spec.defenses:
        cell = CellContext(
            question=QUESTION,
            dataset=prepared.source.name,
            label=prepared.run.settings["label"],
            secret="records",
            defense=text,
            seed=spec.seed,
        )
        measurements += summarised(spec, cell, _figures(results, text), seen.get(text, {}))
    require(
        any("estimator" in one.details for one in measurements),
        f"nothing could be measured: {'; '.join(missing)}",
    )
    return Answer(prepared.run, measurements, missing)


def _taught(spec: TimelineSpec, course: list[ModelCheckpoint]) -> list[ModelCheckpoint]:
    """Return the checkpoints of a training, each with the pairs that its critic learns from."""
    if spec.pairs != STREAM_TO_CHECKPOINT:
        return course
    return [replace(at, pairs=course[-1].pairs) for at in course]


def _results(
    prepared: TokensPrepared,
    course: Sequence[ModelCheckpoint],
    jobs: Mapping[str, CheckpointMeasure],
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> list[tuple[ModelCheckpoint, JobResult]]:
    """Run each job at each checkpoint, or read its kept result back."""
    at_of = {
        f"{at.defense}/{kind}-{at.step:06d}": (at, job)
        for at in course
        for kind, job in jobs.items()
    }
    bare = _without_source(prepared)
    kept = min(prepared.spec.records, len(prepared.private)) * (len(prepared.layers) + 1)
    parts, _ = each_once(
        folder,
        {name: digest_of(at.tensors) for name, (at, _) in at_of.items()},
        lambda left: {name: partial(_one, bare, *at_of[name]) for name in left},
        partial(progress.step, f"{QUESTION}: measuring checkpoints"),
        workers=workers,
        memory=2 * 4 * kept * prepared.spec.width,  # the pairs of a checkpoint, twice
    )
    return [(at_of[name][0], dict(about)) for name, (_, about) in parts.items()]


def _without_source(prepared: TokensPrepared) -> TokensPrepared:
    """Return what jobs need: no source, which may be large."""
    return replace(prepared, source=None)  # type: ignore[arg-type]


def _one(prepared: TokensPrepared, at: ModelCheckpoint, job: CheckpointMeasure) -> Kept:
    return {}, job(prepared, at)


def _figures(
    results: Iterable[tuple[ModelCheckpoint, JobResult]], defense: str
) -> dict[int, list[CheckpointFigure]]:
    """Return the figures of a defense by sub-epoch."""
    found: dict[int, list[CheckpointFigure]] = {}
    for at, one in results:
        if at.defense == defense:
            found.setdefault(at.step, []).extend(map(CheckpointFigure.of_plain, one["figures"]))
    return found
