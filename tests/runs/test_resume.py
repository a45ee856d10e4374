"""A run that is killed and started again ends like an undisturbed one."""

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from leakgauge.core.rng import stream
from support import command, processes
from support.command import figures
from support.tables import frame

pytestmark = pytest.mark.process

ROUNDS = 6


def words(table: Path, out: Path, workers: int = 1) -> list[str]:
    return [
        "audit", str(table), "--label", "income", "--secret", "sex", "--rounds", str(ROUNDS),
        "--adversary", "forest:batches=500", "--adversary", "energies:batches=500",
        "--trials", "1000", "--batch-size", "4", "--workers", str(workers), "--out", str(out),
    ]  # fmt: skip


def program(table: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "leakgauge", *words(table, out)]


def finish(table: Path, out: Path, workers: int = 1) -> float:
    """Run the rest from this process; return the seconds."""
    began = time.monotonic()
    done = command.run(*words(table, out, workers))
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def start(table: Path, out: Path) -> subprocess.Popen:
    return processes.start(program(table, out))


def steps(out: Path) -> dict[Path, int]:
    """Return the finished steps and the time of each file."""
    found = out.glob("work/*/checkpoints/property/step-*.npz")
    return {path: path.stat().st_mtime_ns for path in found}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("resume") / "people.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def undisturbed(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], float]:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    seconds = finish(table, out)
    return figures(out), seconds


@pytest.mark.slow
def test_killed_and_finished_by_workers_of_more_threads(
    table: Path,
    tmp_path: Path,
    undisturbed: tuple[list[str], float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kills, workers and threads do not change figures."""
    out = tmp_path / "run"
    running = start(table, out)
    while len(steps(out)) < 2:
        assert running.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    assert processes.kill(running)
    kept = steps(out)
    assert 2 <= len(kept) < ROUNDS - 1
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    finish(table, out, workers=2)
    assert figures(out) == undisturbed[0]


@pytest.mark.slow
def test_killed_five_times_at_random(
    table: Path, tmp_path: Path, undisturbed: tuple[list[str], float]
) -> None:
    rng = stream(0, "kill")
    out = tmp_path / "run"
    killed = 0
    while killed < 5:
        running = start(table, out)
        time.sleep(rng.uniform(0.2, 0.8) * undisturbed[1])
        killed += processes.kill(running)
        if (out / "measurements.jsonl").exists():  # it was faster than expected: start again
            out = tmp_path / f"run{killed}"
    finish(table, out)
    assert figures(out) == undisturbed[0]


@pytest.mark.slow
def test_interrupted_from_the_keyboard(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    running = subprocess.Popen(
        program(table, out),
        stderr=subprocess.PIPE,
        text=True,
        # a suite that runs in the background may itself ignore Ctrl-C, and children inherit that
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    while not steps(out):
        assert running.poll() is None, "it ended before it could be stopped"
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert f"--out {out}" in errors
