"""One cell of a grid: what it depends on, how it is played, and how it ends."""

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
class Job:
    """A cell with all that its figures depend on.

    Attributes:
        question: that it asks.
        spec: with everything filled in that the data decide.
        data: the name of the data, for the measurements.
        fingerprint: of their content.
    """

    question: Question
    spec: Spec
    data: str
    fingerprint: str

    @property
    def identity(self) -> dict[str, Any]:
        """All that the figures depend on, as plain values; not where the data lie."""
        code = own_code(self.spec)
        return {
            "settings": {**plain(self.spec), "data": self.data},
            "fingerprint": self.fingerprint,
            "versions": versions(),
            **({"code": code} if code else {}),
        }

    @functools.cached_property
    def key(self) -> str:
        """The cell's name in a store."""
        return key_of(self.identity)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        spec: of the cell.
        key: where its answer stands; empty where its data could not be read.
        seconds: that it took.
        times: its figures of time, which the store keeps apart.
        refusal: why it has no answer; None where it has one.
        notes: on what was damaged and made anew.
        worker: the process of a cluster that played it; empty on this machine.
    """

    spec: Spec
    key: str
    seconds: float = 0.0
    times: tuple[Measurement, ...] = ()
    refusal: str | None = None
    notes: tuple[str, ...] = ()
    worker: str = ""


def play(job: Job, out: Path) -> Outcome:
    """Play one cell and keep its answer; steps that a kill left finished are not done again."""
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
                if answer.stopped:  # a cell is whole or not there; its checkpoints stay
                    raise KeyboardInterrupt
                store.keep(key, job.identity, answer, timed=False)
                times = [one for one in answer.measurements if one.metric == SECONDS]
            except InputError as error:
                store.forget(key)
                refusal = str(error)
    seconds = time.perf_counter() - began
    return Outcome(job.spec, key, seconds, tuple(times), refusal, tuple(notes))
