"""Runs the attack on the update of a real client, in place of clients of our own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.core.knowledge import STATIC
from leakgauge.core.types import Task
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.inversion.attack import search_progress
from leakgauge.inversion.methods import Method, method_of
from leakgauge.inversion.metrics.table import LOSS
from leakgauge.inversion.run.kept import keep_facts
from leakgauge.inversion.run.received import (
    PreparedUpdate,
    Received,
    keep_received,
    prepare_received,
)
from leakgauge.inversion.scoring import are_large, are_pictures
from leakgauge.inversion.words import ASSUMED_LR, NAME, OF_AN_UPDATE, RATE
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement, Run
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import NONE, plain
from leakgauge.runs.work import WorkFolder
from leakgauge.training.update import Update

if TYPE_CHECKING:
    from leakgauge.inversion.spec import InversionSpec

_UNSCORED = (
    "the update came from a real client: its true records are not known here, so nothing is scored"
)


def prepare_update(spec: InversionSpec, source: Source) -> PreparedUpdate:
    """Return the update that a spec names, ready for the search.

    Args:
        spec: with an update.
        source: the user's model and public records.

    Raises:
        InputError: the file is no update, or does not fit the model and the records.
    """
    assert source.task is not None
    assert source.dataset is not None
    assert spec.update is not None
    update = Update.load(Path(spec.update))
    if spec.images is not None:
        update = replace(update, records=spec.images)
    task, data = source.task, source.dataset.to(spec.device)
    (text,) = spec.method
    method = method_of(
        text,
        iterations=spec.iterations,
        restarts=spec.restarts,
        are_images=are_pictures(data.x),
        large=are_large(data.x),
    )
    return prepare_received(
        Task(task.model.to(spec.device), task.loss),
        data,
        update,
        method,
        labels=spec.labels,
        simulate=spec.simulate,
        assumed_lr=(spec.assumed_lr or ASSUMED_LR) if RATE in spec.unknown else None,
        statistics=spec.statistics,
        seed=spec.seed,
    )


def run_update(
    spec: InversionSpec, source: Source, folder: WorkFolder, progress: Progress
) -> Answer:
    """Return the loss of the rebuilt records; the records go to the folder unless redacted.

    Raises:
        InputError: as ``prepare_update``, or the search has no finite loss.
    """
    prepared = prepare_update(spec, source)
    described = _described(spec, source, prepared)
    folder.guard(described)
    for note in described.notes:
        progress.note(note)
    for warning in prepared.warnings:
        progress.warn(warning)
    method = prepared.method
    received = prepared.rebuild(
        search_progress(progress, spec.method[0], method.iterations),
        Checkpoint(None if spec.redact else folder, "attempt"),  # a state holds records
    )
    if not spec.redact:
        keep_received(folder.files, received)
    facts: dict[str, Any] = {"warnings": list(received.warnings)}
    # Labels are a part of the records.
    facts["labels"] = None if spec.redact else received.labels.tolist()
    keep_facts(folder.files, [facts])
    measurement = _measurement(received, spec, method, name=described.data["name"])
    return Answer(replace(described, warnings=list(received.warnings)), (measurement,))


def _described(spec: InversionSpec, source: Source, prepared: PreparedUpdate) -> Run:
    assert spec.update is not None
    assert source.dataset is not None
    path = Path(spec.update)
    sent = hashlib.sha256(path.read_bytes()).hexdigest()
    settings = {
        name: value
        for name, value in plain(spec).items()
        if name in OF_AN_UPDATE - {"ask", "data", "files"}
    }
    facts = {
        "name": path.name,
        "fingerprint": hashlib.sha256(f"{sent} {source.fingerprint}".encode()).hexdigest(),
        "records": prepared.seen.shape[0],
        "public": len(source.dataset),
    }
    return Run("", settings, facts, (_UNSCORED,), versions())


def _measurement(
    received: Received, spec: InversionSpec, method: Method, *, name: str
) -> Measurement:
    """Return the one figure that exists without true records: the loss."""
    loss = received.loss
    return Measurement(
        question=NAME,
        game=NAME,
        dataset=name,
        label="",
        secret="records",
        defense=NONE,
        knowledge=STATIC,
        adversary=spec.method[0],
        metric=LOSS,
        round=ACCUMULATED,
        seed=spec.seed,
        estimate=Estimate(loss, loss, loss, len(received.x)),
        chance=0.0,
        curve=received.curve,
        details={"settings": method.described, "labels": spec.labels},
        versions=versions(),
        seconds=received.seconds_per_iteration * max(method.iterations, 1),
    )
