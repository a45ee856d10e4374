"""Trains the model, measures all checkpoints and returns the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from leakgauge.core.checks import require
from leakgauge.runs.parts import Kept, begin, each_once
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.work import WorkFolder, digest_of, elsewhere
from leakgauge.tokens.run.attacking import attacked
from leakgauge.tokens.run.measuring import CheckpointFigure, measured
from leakgauge.tokens.run.preparing import TokensPrepared
from leakgauge.tokens.run.summarising import TokenCell, summarised
from leakgauge.tokens.run.training import ModelCheckpoint, trained
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION

JobResult = dict[str, Any]
Job = Callable[["TimelineSpec", TokensPrepared, ModelCheckpoint], JobResult]


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
    course = [at for text in spec.defenses for at in trained(prepared, text, folder, progress)]
    jobs: dict[str, Job] = {"figures": measured}
    if spec.images and prepared.are_images:
        jobs["attack"] = attacked
    results = _results(prepared, course, jobs, folder, progress, workers)
    missing = [text for one in results.values() for text in one["missing"]]
    cell = TokenCell(prepared.dataset, prepared.label, spec.seed)
    measurements = [
        one
        for text in spec.defenses
        for one in summarised(spec, cell, text, _figures(results, course, text))
    ]
    require(
        any("estimator" in one.details for one in measurements),
        f"nothing could be measured: {'; '.join(dict.fromkeys(missing))}",
    )
    return Answer(prepared.run, measurements, tuple(dict.fromkeys(missing)))


def _results(
    prepared: TokensPrepared,
    course: Sequence[ModelCheckpoint],
    jobs: Mapping[str, Job],
    folder: WorkFolder,
    progress: Progress,
    workers: int | None,
) -> dict[str, JobResult]:
    """Run each job at each checkpoint, or read its kept result back."""
    at_of = {_name(at, kind): (at, job) for at in course for kind, job in jobs.items()}
    # jobs need no source, which may be large
    bare = replace(prepared, source=None)  # type: ignore[arg-type]
    parts, _ = each_once(
        folder,
        {name: digest_of(at.tensors) for name, (at, _) in at_of.items()},
        lambda left: {name: partial(_one, bare, *at_of[name]) for name in left},
        partial(progress.step, f"{QUESTION}: measuring checkpoints"),
        workers=workers,
        memory=_memory(prepared),
    )
    return {name: dict(about) for name, (_, about) in parts.items()}


def _one(prepared: TokensPrepared, at: ModelCheckpoint, job: Job) -> Kept:
    return {}, job(prepared.spec, prepared, at)


def _name(at: ModelCheckpoint, kind: str) -> str:
    return f"{at.defense}/{kind}-{at.step:06d}"


def _figures(
    results: Mapping[str, JobResult], course: Sequence[ModelCheckpoint], defense: str
) -> dict[int, list[CheckpointFigure]]:
    found: dict[int, list[CheckpointFigure]] = {}
    for at in course:
        if at.defense == defense:
            found[at.step] = [
                CheckpointFigure.of_plain(one)
                for name, each in results.items()
                if name in {_name(at, kind) for kind in ("figures", "attack")}
                for one in each["figures"]
            ]
    return found


def _memory(prepared: TokensPrepared) -> int:
    """Return the memory of one checkpoint in bytes: its pairs twice."""
    spec = prepared.spec
    kept = min(spec.records, len(prepared.private)) * spec.width * (len(prepared.layers) + 1)
    return 2 * 4 * kept
