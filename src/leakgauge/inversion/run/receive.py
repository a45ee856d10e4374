"""Plays the attack on the update of a real client, in place of clients of our own."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.core.types import Task
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.inversion.run.attempt import settings_of
from leakgauge.inversion.run.facts import keep_facts
from leakgauge.inversion.run.prepare_update import PreparedUpdate, prepare_received
from leakgauge.inversion.run.progress import search_progress
from leakgauge.inversion.run.received import are_large, are_pictures, keep_received, measurement_of
from leakgauge.inversion.words import ASSUMED_LR, OF_AN_UPDATE, RATE
from leakgauge.results.measurements import Run
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.question import Answer, Progress
from leakgauge.runs.spec import plain
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
    (method,) = spec.method
    settings = settings_of(
        method,
        spec.iterations,
        spec.restarts,
        are_images=are_pictures(data.x),
        large=are_large(data.x),
    )
    return prepare_received(
        Task(task.model.to(spec.device), task.loss),
        data,
        update,
        settings,
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
    settings = prepared.settings
    received = prepared.rebuild(
        search_progress(progress, spec.method[0], settings.iterations),
        Checkpoint(None if spec.redact else folder, "attempt"),  # a state holds records
    )
    if not spec.redact:
        keep_received(folder.files, received)
    facts: dict[str, Any] = {"warnings": list(received.warnings)}
    # Labels are a part of the records.
    facts["labels"] = None if spec.redact else received.labels.tolist()
    keep_facts(folder.files, [facts])
    measurement = measurement_of(received, spec, settings, name=described.data["name"])
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
        "records": prepared.shape[0],
        "public": len(source.dataset),
    }
    return Run("", settings, facts, (_UNSCORED,), versions())
