"""The example for Flower runs as its page says, and its updates are audited."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from leakgauge.integrations.kept_reading import read_kept
from support.flower_app import EXAMPLE

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')


def ran(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "FLWR_TELEMETRY_ENABLED": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_flower_installs_nothing_for_a_run() -> None:
    """It would take leakgauge from an index, in place of this one."""
    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))
    assert settings["project"]["dependencies"] == []


@pytest.mark.slow
@pytest.mark.process
def test_three_clients_train_and_their_updates_are_audited(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    shutil.copytree(EXAMPLE, folder)
    ran(folder, "in_process.py")
    kept = read_kept(folder / "kept")
    assert (kept.rounds, kept.clients, len(kept.updates)) == ([1, 2], ["0", "1", "2"], 6)
    words = ("--momentum", "0.9", "--iterations", "30", "--shadow", "40", "--json")
    told = ran(folder, "-m", "leakgauge", "federation", "kept", "--task", "audit:task", *words)
    found = json.loads(told)
    for ask in ("reconstruction", "membership", "property"):
        assert len(found[ask]["updates"]) == 6, ask
    assert found["property"]["value"] > 0.8  # every client has one scanner
