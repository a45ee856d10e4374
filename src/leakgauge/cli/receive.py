"""``leakgauge invert --update FILE --task MODULE:FUNCTION``: an update from a real client."""

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from leakgauge.cli import options
from leakgauge.cli.bars import search_bars
from leakgauge.cli.usertask import load_task
from leakgauge.core.checks import require, require_choice
from leakgauge.core.types import Dataset, Task
from leakgauge.data import fingerprint
from leakgauge.inference.run import versions
from leakgauge.inversion.report.page import write_inversion
from leakgauge.inversion.report.wording import sentences
from leakgauge.inversion.run.received import prepare_received, record_count
from leakgauge.inversion.run.spec import EXACT, KNOWN, LABELS, settings_of
from leakgauge.inversion.run.unscored import Received, are_pictures, keep_received, received_record
from leakgauge.inversion.search.parse import parse_attack
from leakgauge.inversion.search.presets import PRESETS
from leakgauge.inversion.search.settings import Settings
from leakgauge.results.measurements import Run, write_measurements
from leakgauge.runs.store import RunFolder
from leakgauge.training.update import Update

OWN = frozenset(
    {
        *("update", "task", "method", "images", "iterations", "restarts", "labels", "simulate"),
        *("redact", "device", "seed", "out", "json_"),
    }
)
"""The options of ``leakgauge invert`` that go with an update from a file."""


@dataclass(frozen=True)
class Asked:
    """What is asked of one update.

    Attributes:
        update: the file.
        task: ``MODULE:FUNCTION``.
        method: names of attacks; one is expected.
        images: records behind the update; None where it says so itself.
        iterations: of the search, or None.
        restarts: of the search.
        labels: how they are come by.
        simulate: whether to simulate local steps.
        redact: whether to keep no record.
        device: where torch computes.
        seed: all randomness follows from it.
    """

    update: Path
    task: str
    method: Sequence[str]
    images: int | None
    iterations: int | None
    restarts: int
    labels: str
    simulate: bool
    redact: bool
    device: str
    seed: int


def receive(asked: Asked, command: str, *, out: Path | None, json_: bool) -> None:
    """Rebuild, keep, print."""
    began, notices = time.perf_counter(), Console(stderr=True)
    method = _method(asked)
    require_choice(asked.labels, "--labels", LABELS)
    update = Update.load(asked.update)
    if asked.images is not None:
        update = replace(update, records=asked.images)
    count = record_count(update)
    task, data = load_task(asked.task, seed=asked.seed)
    settings = settings_of(method, asked.iterations, asked.restarts, pictures=are_pictures(data.x))
    task, data = Task(task.model.to(asked.device), task.loss), data.to(asked.device)
    ready = prepare_received(
        task,
        data,
        update,
        settings,
        labels=asked.labels,
        simulate=asked.simulate,
        seed=asked.seed,
    )
    described = _described(asked, method, settings, data, count, command)
    path = options.run_path(out, command)
    folder = RunFolder.claim(path, described)
    for warning in ready.warnings:
        notices.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    with search_bars(notices) as start:
        found = ready.rebuild(start(method, settings.iterations))
    record = received_record(
        found,
        name=asked.update.name,
        method=method,
        labels=asked.labels,
        settings=settings,
        seed=asked.seed,
    )
    write_measurements(folder.path, [record])
    if not asked.redact:
        keep_received(folder.path, found)
    report = write_inversion(folder.path, described, [record])
    if json_:
        print(json.dumps(as_json(asked, method, settings, found, report), allow_nan=False))
        return
    told = [] if asked.redact else [_labels_line(asked, found)]
    for line in [*sentences([record]), *told]:
        Console().print(Text("\n" + line), soft_wrap=True)
    seconds = time.perf_counter() - began
    Console().print(Text(f"\nreport: {report}  ({seconds:.0f} s)"), soft_wrap=True)


def as_json(
    asked: Asked, method: str, settings: Settings, found: Received, report: Path
) -> dict[str, object]:
    """What a pipeline needs; labels are a part of the records, so ``--redact`` leaves them out."""
    return {
        "method": method,
        "records": len(found.x),
        "iterations": settings.iterations,
        "loss": found.loss,
        "labels": None if asked.redact else found.labels.tolist(),
        "warnings": list(found.warnings),
        "seconds_per_iteration": found.seconds_per_iteration,
        "report": str(report),
    }


def _method(asked: Asked) -> str:
    """The one attack that is asked for."""
    require(
        len(asked.method) == 1,
        f"--method is named {len(asked.method)} times; with --update expected once, since losses "
        "of different methods cannot be compared: run a command for each",
    )
    (method,) = asked.method
    require(
        parse_attack(method, EXACT) is not None,
        f"--method {method} is for DATA; with --update choose one of {', '.join(PRESETS)}",
    )
    return method


def _described(
    asked: Asked, method: str, settings: Settings, data: Dataset, count: int, command: str
) -> Run:
    sent = hashlib.sha256(asked.update.read_bytes()).hexdigest()
    content = hashlib.sha256(f"{sent} {fingerprint(data)}".encode()).hexdigest()
    told = {
        **asdict(asked),
        "update": str(asked.update),
        "method": [method],
        "iterations": settings.iterations,
    }
    about = {
        "name": asked.update.name,
        "fingerprint": content,
        "records": count,
        "public": len(data),
    }
    notes = (
        "the update came from outside: the true records are not known here, so nothing is scored",
    )
    return Run(command, told, about, notes, versions())


def _labels_line(asked: Asked, found: Received) -> str:
    how = "known" if asked.labels == KNOWN else "inferred"
    return f"labels ({how}): {', '.join(map(str, found.labels.tolist()))}"
