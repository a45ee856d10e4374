"""What Ctrl-C leaves: whole cells only, and a report that says what is not finished."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from leakgauge.data.source import Source, frame_source
from leakgauge.runs.audit import describe, resolve, run_audit
from leakgauge.runs.page import read_audit
from leakgauge.runs.question import Answer, Silent
from leakgauge.runs.runner import Job, play
from leakgauge.runs.sources import source_of
from leakgauge.runs.store import Store
from support.tables import frame
from support.toy.question import Toy, ToySpec


class Stopped(Toy):
    """Its user stops it; what is finished by then makes its answer."""

    def run(self, *given: Any, workers: int | None = None) -> Answer:
        return replace(super().run(*given, workers=workers), stopped=True)


class Interrupted(Toy):
    """Its user stops it before anything is finished."""

    def run(self, *given: Any, workers: int | None = None) -> Answer:
        raise KeyboardInterrupt


def test_a_grid_keeps_no_cell_that_was_stopped(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "people.csv", index=False)
    data = str(tmp_path / "people.csv")
    source = source_of(ToySpec(data=data))
    job = Job(Stopped(), ToySpec(data=data).resolve(source), source.name, source.fingerprint)
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        play(job, tmp_path / "out")
    assert not Store(tmp_path / "out").has(job.key)
    whole = replace(job, question=Toy())
    assert play(whole, tmp_path / "out").refusal is None
    assert Store(tmp_path / "out").has(job.key)


def test_a_stopped_audit_names_the_questions_that_are_not_finished(tmp_path: Path) -> None:
    source: Source = frame_source(frame())
    asked = {"toy": (Toy(), ToySpec()), "later": (Interrupted(), ToySpec())}
    resolved = resolve(asked, source=source)
    description = describe("audit", resolved)
    audit = run_audit(tmp_path / "out", description, resolved, progress=Silent(), workers=1)
    assert audit.stopped
    assert audit.missing == ["later: not finished; repeat the command to go on"]
    assert read_audit(tmp_path / "out").missing == audit.missing
