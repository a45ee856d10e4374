"""One cell of a grid: its inputs, its run and its outcome."""

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.threads import one_thread
from leakgauge.core.versions import versions
from leakgauge.results.measurements import SECONDS, Measurement
from leakgauge.runs.question import Question, Silent
from leakgauge.runs.sources import unchanged
from leakgauge.runs.spec import Spec, own_code, plain
from leakgauge.runs.store import Store, key_of


@dataclass(frozen=True)
class CellJob:
    """A cell with everything that its figures depend on.

    Attributes:
        question: the question that it asks.
        spec: settings with everything filled in that the data decide.
        data: name of the data in the measurements.
        fingerprint: digest of the content of the data.
    """

    question: Question
    spec: Spec
    data: str
    fingerprint: str

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the figures depend on, as plain values, without the path of the data."""
        code = own_code(self.spec)
        return {
            "settings": {**plain(self.spec), "data": self.data},
            "fingerprint": self.fingerprint,
            "versions": versions(),
            **({"code": code} if code else {}),
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


def run_cell(job: CellJob, out: Path) -> CellOutcome:
    """Run one cell and keep its answer; finished steps of a killed run are read back."""
    began, key, store = time.perf_counter(), job.key, Store(out)
    refusal, notes, times = None, list[str](), list[Measurement]()
    with store.alone(key):
        if store.kept(key, job.identity, notes.append) is None:
            try:
                source = unchanged(job.spec, job.fingerprint)
                with one_thread():
                    work = store.work(key, notes.append)
                    prepared = job.question.prepare(job.spec, source)
                    answer = job.question.run(prepared, work, Silent(), workers=1)
                if answer.stopped:  # a cell is kept whole or not at all; its checkpoints stay
                    raise KeyboardInterrupt
                store.keep(key, job.identity, answer, timed=False)
                times = [one for one in answer.measurements if one.metric == SECONDS]
            except InputError as error:
                store.forget(key)
                refusal = str(error)
    seconds = time.perf_counter() - began
    return CellOutcome(job.spec, key, seconds, tuple(times), refusal, tuple(notes))
