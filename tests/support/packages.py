"""Make packages that register something with leakgauge by entry points."""

import os
from collections.abc import Mapping
from pathlib import Path

TESTS = Path(__file__).parents[1]


def registered(folder: Path, group: str, entries: Mapping[str, str]) -> dict[str, str]:
    """Write a distribution with entry points to ``folder``; return an environment that sees it."""
    info = folder / "leakgauge_extra-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: leakgauge-extra\nVersion: 1.0\n")
    lines = "\n".join(f"{name} = {address}" for name, address in entries.items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{lines}\n")
    there = [str(folder), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in there if one)}
