"""Jobs that other processes run, and what this process does in the meantime."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from leakgauge.runs.executors import processes
from leakgauge.runs.executors.processes import spread

pytestmark = pytest.mark.process


def touched(path: Path) -> int:
    """Create a file, and return the number of this process."""
    path.touch()
    return os.getpid()


def test_this_process_makes_jobs_while_others_run_those_that_are_made(tmp_path: Path) -> None:
    def made() -> Iterator[Callable[[], int]]:
        for name in ("one", "two"):
            yield partial(touched, tmp_path / name)
        until = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:  # they run before the third is made
            assert time.monotonic() < until
            time.sleep(0.01)
        yield partial(touched, tmp_path / "three")

    ran = list(spread(made(), count=3, workers=2))
    assert len(ran) == 3
    assert os.getpid() not in ran


def test_without_a_number_of_workers_this_process_runs_jobs_together_with_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "WORTH_STARTING", 0.0)
    monkeypatch.setattr(processes, "cpu_count", lambda: 2)
    jobs = [partial(touched, tmp_path / str(number)) for number in range(8)]
    ran = list(spread(jobs, count=8, workers=None))
    assert len(ran) == len(list(tmp_path.iterdir())) == 8
    assert os.getpid() in ran[1:]
    assert len(set(ran)) == 2


def test_short_jobs_start_no_process(tmp_path: Path) -> None:
    jobs = [partial(touched, tmp_path / str(number)) for number in range(8)]
    assert set(spread(jobs, count=8, workers=None)) == {os.getpid()}


def test_a_stop_with_many_jobs_left_prints_nothing(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal, time
from leakgauge.runs.executors.processes import spread
def job():
    (pathlib.Path({str(tmp_path)!r}) / str(os.getpid())).touch()
    time.sleep(60)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
try:
    list(spread([job] * 40, count=40, workers=2))
except KeyboardInterrupt:
    pass
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            until = time.monotonic() + 60
            while len(list(tmp_path.iterdir())) < 2:  # both processes have started
                assert time.monotonic() < until
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            assert running.communicate(timeout=20)[1] == ""
        finally:
            running.kill()
