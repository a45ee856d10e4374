"""One cell of a grid: its inputs, its run and its outcome."""

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.threads import one_thread
from leakgauge.core.versions import versions
from leakgauge.results.measurements import SECONDS, Measurement
from leakgauge.runs.question import Prepared, Question, Silent
from leakgauge.runs.sources import unchanged
from leakgauge.runs.spec import Spec, own_code, plain, refuse_other_code
from leakgauge.runs.store import Store, key_of


@dataclass(frozen=True)
class CellJob:
    """A cell with everything that its figures depend on.

    Attributes:
        question: the question that it asks.
        spec: settings with everything filled in that the data decide.
        data: name of the data in the measurements.
        fingerprint: digest of the content of the data.
        inputs: digest of each other input, by its name.
    """

    question: Question
    spec: Spec
    data: str
    fingerprint: str
    inputs: Mapping[str, str] = field(default_factory=dict)

    @functools.cached_property
    def identity(self) -> dict[str, Any]:
        """Everything that the figures depend on, as plain values, without the path of the data."""
        code = own_code(self.spec)
        return {
            "settings": {**plain(self.spec), "data": self.data},
            "fingerprint": self.fingerprint,
            "versions": versions(),
            **({"code": code} if code else {}),
            **({"inputs": dict(self.inputs)} if self.inputs else {}),
        }

    @functools.cached_property
    def key(self) -> str:
        """Name of the cell in a store."""
        return key_of(self.identity)


@dataclass(frozen=True)
class CellOutcome:
    """How a cell ended.

    Attributes:
        spec: settings of the cell.
        key: name of its answer in the store; empty if its data could not be read.
        seconds: duration of the cell.
        times: its figures of time, which the store keeps in another file.
        refusal: why it has no answer; None if it has one.
        notes: what was damaged and made anew.
        worker: process of a cluster that ran it; empty on this machine.
    """

    spec: Spec
    key: str
    seconds: float = 0.0
    times: tuple[Measurement, ...] = ()
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    worker: str = ""


def refuse_other_inputs(job: CellJob, prepared: Prepared) -> None:
    """Refuse inputs that changed since the cell was described.

    Raises:
        InputError: the content of a file is another one.
    """
    found = {**prepared.inputs(), "files": getattr(prepared.spec, "files", "")}
    wanted = {**job.inputs, "files": getattr(job.spec, "files", "")}
    for name in (one for one in found if found[one] != wanted.get(one)):
        raise InputError(f"the content of {name} changed since the run began; start it again")


def run_cell(job: CellJob, out: Path) -> CellOutcome:
    """Run one cell and keep its answer; finished steps of a killed run are read back."""
    began, key, store = time.perf_counter(), job.key, Store(out)
    refusal, notes, times = None, list[str](), list[Measurement]()
    with store.alone(key):
        if store.kept(key, job.identity, notes.append) is None:
            try:
                source = unchanged(job.spec, job.fingerprint)
                with one_thread():
                    work = store.work(key, notes.append, identity=job.identity)
                    prepared = job.question.prepare(job.spec, source)
                    refuse_other_inputs(job, prepared)
                    answer = job.question.run(prepared, work, Silent(), workers=1)
                refuse_other_code(job.spec, job.identity.get("code", {}))
                if answer.stopped:  # a cell is kept whole or not at all; its checkpoints stay
                    raise KeyboardInterrupt
                store.keep(key, job.identity, answer, timed=False)
                times = [one for one in answer.measurements if one.metric == SECONDS]
            except InputError as error:
                store.forget(key)
                refusal = str(error)
    seconds = time.perf_counter() - began
    return CellOutcome(job.spec, key, seconds, tuple(times), refusal, tuple(notes))
