"""Runs an audit: several questions about the same data, one folder, one report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.files import write_yaml
from leakgauge.core.versions import versions
from leakgauge.data.source import Source
from leakgauge.results.measurements import Measurement, write_measurements
from leakgauge.runs.question import Answer, Progress, Question
from leakgauge.runs.sources import source_of
from leakgauge.runs.spec import Spec, own_code, plain
from leakgauge.runs.store import Description, Store, key_of

REFUSED_FILE = "refused.yaml"
UNFINISHED = "not finished; repeat the command to go on"

Asked = Mapping[str, tuple[Question, Spec]]
"""The questions of an audit by name, each with its settings."""


@dataclass(frozen=True)
class AuditRun:
    """A finished audit.

    Attributes:
        path: its folder.
        description: of ``run.yaml``.
        answers: by question.
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
class Resolved:
    """One question with its settings filled in and its data opened."""

    question: Question
    spec: Spec
    source: Source

    def identity(self, name: str) -> dict[str, Any]:
        """Return all that the figures of the answer ``name`` depend on."""
        return {
            "question": name,
            "settings": identifying(self.spec),
            "fingerprint": self.source.fingerprint,
            "versions": versions(),
        }


def resolve(asked: Asked, *, source: Source | None = None) -> dict[str, Resolved]:
    """Check the settings of every question, open the data and fill in what they decide.

    Args:
        asked: the questions by name.
        source: data at hand; None opens what the settings name.

    Raises:
        InputError: a setting is wrong, or the data do not fit it.
    """
    for _, spec in asked.values():
        spec.check()
    resolved = {}
    for name, (question, spec) in asked.items():
        data = source or source_of(spec)
        resolved[name] = Resolved(question, spec.resolve(data), data)
    return resolved


def describe(
    command: str, resolved: Mapping[str, Resolved], *, repeat: str = "", notes: Sequence[str] = ()
) -> Description:
    """Return what ``run.yaml`` says of an audit."""
    source = next(iter(resolved.values())).source
    return Description(
        command=command,
        settings={name: identifying(one.spec) for name, one in resolved.items()},
        cells=tuple(resolved),
        data={"name": source.name, "fingerprint": source.fingerprint},
        versions=versions(),
        repeat=repeat,
        notes=tuple(notes),
        identities={name: key_of(one.identity(name)) for name, one in resolved.items()},
    )


def run_audit(
    out: Path,
    description: Description,
    resolved: Mapping[str, Resolved],
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
    for number, (name, one) in enumerate(resolved.items(), start=1):
        try:
            answers[name] = _answer(store, name, one, progress, workers)
        except InputError as error:
            if number == len(resolved) and not answers:
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
    left = [name for name in resolved if name not in answers and name not in refused]
    missing = refused | dict.fromkeys(left, UNFINISHED)
    audit = AuditRun(out, description, answers, missing, stopped)
    write_measurements(out, audit.measurements)
    if refused:
        write_yaml(out / REFUSED_FILE, refused)
    else:
        (out / REFUSED_FILE).unlink(missing_ok=True)
    return audit


def _answer(
    store: Store, name: str, one: Resolved, progress: Progress, workers: int | None
) -> Answer:
    identity = one.identity(name)
    with store.alone(name):
        kept = store.kept(name, identity, progress.note)
        if kept is not None:
            return kept
        work = store.work(name, progress.note)
        answer = one.question.run(one.spec, one.source, work, progress, workers=workers)
        if not answer.stopped:
            store.keep(name, identity, answer)
        return answer


def identifying(spec: Spec) -> dict[str, Any]:
    """Return the settings without where the data lie: their fingerprint says which they are.

    The user's own code counts by its content.
    """
    settings = {name: value for name, value in plain(spec).items() if name != "data"}
    code = own_code(spec)
    return {**settings, "code": code} if code else settings
