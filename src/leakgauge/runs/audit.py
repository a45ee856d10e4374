"""Runs an audit: several questions about the same data, one folder, one report."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.files import write_yaml
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.results.measurements import Measurement, write_measurements
from leakgauge.runs.question import Answer, Asked, Prepared, Progress, Question
from leakgauge.runs.sources import source_of
from leakgauge.runs.spec import Spec, identifying, refuse_other_code
from leakgauge.runs.store import Description, Store, key_of
from leakgauge.runs.timings import keep_timing

REFUSED_FILE = "refused.yaml"
UNFINISHED = "not finished; repeat the command to resume"


@dataclass(frozen=True)
class AuditRun:
    """A finished audit.

    Attributes:
        path: its folder.
        description: content of ``run.yaml``.
        answers: answers by question.
        refused: the questions that are not answered, and why.
        stopped: whether the user stopped it before its end.
    """

    path: Path
    description: Description
    answers: Mapping[str, Answer]
    refused: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False

    @property
    def measurements(self) -> list[Measurement]:
        """The measurements of all questions."""
        return [one for answer in self.answers.values() for one in answer.measurements]

    @property
    def missing(self) -> list[str]:
        """What was requested and not completed, with the reasons."""
        parts = [text for answer in self.answers.values() for text in answer.missing]
        return [*parts, *(f"{name}: {reason}" for name, reason in self.refused.items())]


@dataclass(frozen=True)
class AuditQuestion:
    """One question of an audit, ready to run.

    Attributes:
        question: the question.
        prepared: its settings and data.
    """

    question: Question
    prepared: Prepared

    @property
    def spec(self) -> Spec:
        """The settings, filled in."""
        spec: Spec = self.prepared.spec
        return spec

    @property
    def source(self) -> Source:
        """The data."""
        return self.prepared.source

    def identity(self, name: str) -> dict[str, Any]:
        """Return everything that the figures of the answer ``name`` depend on."""
        return {"question": name, **self.prepared.identity()}


def prepare_all(asked: Asked, *, source: Source | None = None) -> dict[str, AuditQuestion]:
    """Check the settings of every question, open the data and prepare every question once.

    Args:
        asked: the questions by name.
        source: opened data; None opens what the settings name.

    Raises:
        InputError: a setting is wrong, or the data do not fit it.
    """
    for question, spec in asked.values():
        question.check(spec)
    return {
        name: AuditQuestion(question, question.prepare(spec, source or source_of(spec)))
        for name, (question, spec) in asked.items()
    }


def describe(
    command: str,
    prepared: Mapping[str, AuditQuestion],
    *,
    repeat: str = "",
    notes: Sequence[str] = (),
) -> Description:
    """Return the content of ``run.yaml`` for an audit."""
    source = next(iter(prepared.values())).source
    return Description(
        command=command,
        settings={name: identifying(one.spec) for name, one in prepared.items()},
        cells=tuple(prepared),
        data={"name": source.name, "fingerprint": source.fingerprint},
        versions=versions(),
        repeat=repeat,
        notes=tuple(notes),
        identities={name: key_of(one.identity(name)) for name, one in prepared.items()},
    )


def run_audit(
    out: Path,
    description: Description,
    prepared: Mapping[str, AuditQuestion],
    *,
    progress: Progress,
    workers: int | None = None,
) -> AuditRun:
    """Ask every question and keep its answer; finished ones are read back from the folder.

    A question that cannot be answered is left out; the others are kept.

    Raises:
        InputError: the folder cannot be used, or no question could be answered.
        KeyboardInterrupt: the user stopped it before anything was measured.
    """
    store = Store.claim(out, description, progress.note)
    answers: dict[str, Answer] = {}
    refused: dict[str, str] = {}
    stopped = False
    for number, (name, one) in enumerate(prepared.items(), start=1):
        try:
            answers[name] = _answer(store, name, one, progress, workers)
        except InputError as error:
            if number == len(prepared) and not answers:
                raise
            refused[name] = str(error)
            continue
        except KeyboardInterrupt:
            if not answers:
                raise
            stopped = True
        if stopped or answers[name].stopped:
            stopped = True
            break
    left = [name for name in prepared if name not in answers and name not in refused]
    missing = refused | dict.fromkeys(left, UNFINISHED)
    audit = AuditRun(out, description, answers, missing, stopped)
    write_measurements(out, audit.measurements)
    if refused:
        write_yaml(out / REFUSED_FILE, refused)
    else:
        (out / REFUSED_FILE).unlink(missing_ok=True)
    return audit


def _answer(
    store: Store, name: str, one: AuditQuestion, progress: Progress, workers: int | None
) -> Answer:
    identity = one.identity(name)
    with store.alone(name):
        kept = store.kept(name, identity, progress.note)
        if kept is not None:
            return kept
        start = time.perf_counter()
        work = store.work(name, progress.note, identity=identity)
        answer = one.question.run(one.prepared, work, progress, workers=workers)
        refuse_other_code(one.spec, identity.get("settings", {}).get("code", {}))
        if not answer.stopped:
            store.keep(name, identity, answer)
            keep_timing(store.path, name, time.perf_counter() - start, ())
        return answer
