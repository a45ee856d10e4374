"""Run the command line, in this process or in a separate one, and read its files."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from leakgauge.cli import main

WIDE = "400"
"""Width of the terminal in columns, so that sentences do not wrap."""


def unless_given(defaults: Mapping[str, object], words: Sequence[object]) -> list[object]:
    """Return the options and their values, except those that the words set."""
    return [part for pair in defaults.items() if pair[0] not in words for part in pair]


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command, with the names of ``subprocess``."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: object, cwd: Path | None = None) -> Ended:
    """Run the command in this process, which is faster than starting one."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["leakgauge", *map(str, words)])
        patch.setenv("COLUMNS", WIDE)
        if cwd is not None:
            patch.chdir(cwd)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _exit_code()
    return Ended(code, out.getvalue(), err.getvalue())


def _exit_code() -> int:
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def process(*words: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess:
    """Run the command in a separate process, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "leakgauge", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=300,
    )


def figures(folder: Path) -> list[str]:
    """Return the lines of measurements.jsonl without their timings."""
    lines = (folder / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    measured = [one for one in map(json.loads, lines) if one["metric"] != "seconds"]
    for one in measured:
        one.pop("seconds")
    return [json.dumps(one, sort_keys=True) for one in measured]
