"""Ctrl-C leaves only whole cells, and a report that lists unfinished parts."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leakgauge.core.checks import InputError
from leakgauge.data.source import Source, frame_source
from leakgauge.runs.audit import describe, prepare_all, run_audit
from leakgauge.runs.cell import CellJob, run_cell
from leakgauge.runs.executors.processes import spread
from leakgauge.runs.page import read_audit
from leakgauge.runs.question import Answer, Silent
from leakgauge.runs.sources import source_of
from leakgauge.runs.store import Store
from support import processes
from support.command import process
from support.tables import frame
from support.toy.question import Toy, ToySpec


class Stopped(Toy):
    """Question that its user stops; its answer has the finished part."""

    def run(self, *given: Any, workers: int | None = None) -> Answer:
        return replace(super().run(*given, workers=workers), stopped=True)


class Interrupted(Toy):
    """Question that its user stops before anything is finished."""

    def run(self, *given: Any, workers: int | None = None) -> Answer:
        raise KeyboardInterrupt


def test_a_grid_keeps_no_cell_that_was_stopped(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "people.csv", index=False)
    data = str(tmp_path / "people.csv")
    source = source_of(ToySpec(data=data))
    job = CellJob(
        Stopped(), Toy().prepare(ToySpec(data=data), source).spec, source.name, source.fingerprint
    )
    (tmp_path / "out").mkdir()
    with pytest.raises(KeyboardInterrupt):
        run_cell(job, tmp_path / "out")
    assert not Store(tmp_path / "out").has(job.key)
    whole = replace(job, question=Toy())
    assert run_cell(whole, tmp_path / "out").refusal is None
    assert Store(tmp_path / "out").has(job.key)


def test_a_stopped_audit_names_the_questions_that_are_not_finished(tmp_path: Path) -> None:
    source: Source = frame_source(frame())
    asked = {"toy": (Toy(), ToySpec()), "later": (Interrupted(), ToySpec())}
    resolved = prepare_all(asked, source=source)
    description = describe("audit", resolved)
    audit = run_audit(tmp_path / "out", description, resolved, progress=Silent(), workers=1)
    assert audit.stopped
    assert audit.missing == ["later: not finished; repeat the command to resume"]
    assert read_audit(tmp_path / "out").missing == audit.missing


def _running() -> dict[int, int]:
    """Return the parent of each running process, by number."""
    listed = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {int(pid): int(of) for pid, of, state in rows if state[0] != "Z"}


@pytest.mark.process
@pytest.mark.parametrize("seconds", [0.1, 0.6])
def test_an_interrupt_while_modules_are_imported_ends_in_silence(seconds: float) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "leakgauge", "audit", "randhie"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    time.sleep(seconds)
    running.send_signal(signal.SIGINT)
    printed, _ = running.communicate(timeout=30)
    if running.returncode != -signal.SIGINT and "import runpy" not in printed:  # Python was ready
        assert (running.returncode, printed) == (130, "")


@pytest.mark.process
def test_an_interrupt_whose_exception_python_drops_ends_it_too() -> None:
    program = """
import signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it

class Dropped:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "leakgauge.cli.app":
            Dropped()

sys.meta_path.insert(0, Finder())
sys.argv = ["leakgauge", "--version"]
from leakgauge.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_workers_with_the_command(number: signal.Signals, tmp_path: Path) -> None:
    running = processes.start(
        [sys.executable, "-m", "leakgauge", "audit", "randhie", "--rounds", 30, "--workers", 2,
         "--out", tmp_path / "run"]
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while not list(tmp_path.glob("run/work/*/checkpoints/property/step-*.npz")):
            assert time.monotonic() < until
            time.sleep(0.2)
        children = [pid for pid, parent in _running().items() if parent == running.pid]
        assert len(children) >= 2
        running.send_signal(number)
        assert running.wait(timeout=20) == 128 + number  # without waiting for their jobs
        time.sleep(1)
        assert not set(children) & set(_running())
    finally:
        processes.kill(running)


@pytest.mark.slow
@pytest.mark.process
def test_what_a_dead_worker_did_not_finish_runs_once_more(tmp_path: Path) -> None:
    jobs = [
        partial(processes.dies, tmp_path / "one", 1),
        *(partial(abs, number) for number in range(4)),
    ]
    assert sorted(spread(jobs, count=len(jobs), workers=2)) == [-1, 0, 1, 2, 3]
    twice = [partial(processes.dies, tmp_path / "two", 9), partial(abs, 1)]
    with pytest.raises(InputError, match="a worker process died twice"):
        list(spread(twice, count=2, workers=2))


@pytest.mark.slow
@pytest.mark.process
def test_a_job_that_kills_its_process_twice_is_given_up_and_the_others_continue(
    tmp_path: Path,
) -> None:
    jobs = [
        *(partial(processes.meets, tmp_path, name, 2) for name in ("left", "right")),
        partial(processes.dies, tmp_path / "one", 9),
        partial(abs, 2),
        partial(processes.dies, tmp_path / "two", 9),
        *(partial(abs, number) for number in range(3, 7)),
    ]
    found = list(spread(jobs, count=len(jobs), workers=2, given_up=lambda number: 100 + number))
    assert sorted(found) == [0, 0, 2, 3, 4, 5, 6, 102, 104]
    for name in ("one", "two"):  # both may fail at once, although only one is suspected
        assert 2 <= len(list(tmp_path.glob(f"{name}-*"))) <= 3


BOMB = """
import os, signal
from leakgauge.defenses import none
def build():
    if os.getppid() != {parent}:  # in a worker
        os.kill(os.getpid(), signal.SIGKILL)
    return none()
"""


@pytest.mark.slow
@pytest.mark.process
def test_the_rest_of_a_grid_continues_if_a_cell_kills_its_worker(tmp_path: Path) -> None:
    (tmp_path / "bomb.py").write_text(BOMB.format(parent=os.getpid()))
    (tmp_path / "g.yaml").write_text(
        "name: bombs\nabout: ''\ngrids:\n- ask: property\n  data: randhie\n  rounds: 1\n"
        "  trials: 100\n  shadow: 200\n  adversary: energies\n"
        "  defense: [none, 'bomb:build', sign, 'clip:l2=1']\n"
    )
    ended = process("run", "g.yaml", "--jobs", 2, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert "a worker process died twice" in ended.stderr
    assert "3 of 4 cells" in ended.stdout
