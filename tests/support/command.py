"""The command line in a process of its own, and what it wrote."""

import json
import os
import subprocess
import sys
from pathlib import Path


def leakgauge(*args: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "leakgauge", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=300,
    )


def figures(folder: Path) -> list[str]:
    """The lines of measurements.jsonl without their timings."""
    lines = (folder / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    for record in found:
        record.pop("seconds")
    return [json.dumps(record, sort_keys=True) for record in found]
