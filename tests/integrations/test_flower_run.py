"""Apps that ``flwr run`` starts, and a federation of processes, by the pages' own commands."""

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest

from leakgauge.integrations.kept_reading import read_kept
from support.flower_app import EXAMPLE
from support.flower_processes import (
    PROCESSES,
    blocks,
    commands,
    flower_home,
    free_ports,
)

pytest.importorskip("flwr", reason='needs pip install "leakgauge[flower]"')

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "flower.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not (PROCESSES / "self" / "environ").exists(), reason="needs /proc"),
]
QUICK = " --iterations 30 --shadow 40 --json"


def installs(line: str) -> bool:
    """Return whether a command installs packages, which the tests have."""
    return line.startswith("pip install")


def clone(folder: Path) -> Path:
    """Return a copy of the project's examples, as a fresh clone has them."""
    made = folder / "leakgauge"
    shutil.copytree(
        EXAMPLE,
        made / "examples" / "flower",
        ignore=shutil.ignore_patterns("kept*", "__pycache__", "leakgauge-runs"),
    )
    return made


@pytest.mark.parametrize("heading", ["Run it with flwr", "Run it in one process"])
def test_the_example_runs_by_the_commands_of_its_page(tmp_path: Path, heading: str) -> None:
    folder = clone(tmp_path)
    ((_, block),) = blocks((EXAMPLE / "README.md").read_text("utf-8"), heading)
    if "flwr run" in block:
        pytest.importorskip("ray", reason="needs pip install 'flwr[simulation]'")
    said = ""
    with flower_home(tmp_path) as home:
        for line in commands(block):
            if line.startswith("cd "):
                folder = folder / line[3:]
            elif not installs(line):
                said = home.ran(line + QUICK * line.startswith("leakgauge"), folder)
        home.ran("flwr build", folder)
    kept = read_kept(folder / "kept")
    assert (kept.rounds, kept.clients, len(kept.updates)) == ([1, 2], ["0", "1", "2"], 6)
    assert [(one.examples, one.training.lr) for one in kept.updates] == [(16, 0.1)] * 6
    found = json.loads(said[said.index("{") :])
    for ask in ("reconstruction", "membership", "property"):
        assert len(found[ask]["updates"]) == 6, ask
    names = zipfile.ZipFile(next(folder.glob("*.fab"))).namelist()
    assert "audit.py" in names
    assert not [one for one in names if one.startswith(("kept", "leakgauge-runs"))]


def test_a_federation_of_processes_runs_by_the_page_alone(tmp_path: Path) -> None:
    """Only the ports, and what installs packages, differ from the page."""
    clone(tmp_path)
    text = PAGE.read_text("utf-8")
    for port, free in zip(("8000", "9094", "9095"), free_ports(3), strict=True):
        text = re.sub(rf"\b{port}\b", str(free), text)
    hospitals = said = ""
    with flower_home(tmp_path) as home:
        for number, (language, block) in enumerate(blocks(text, "Several machines")):
            if language == "toml":
                home.ran("flwr config list", tmp_path)
                with (Path(home.env["FLWR_HOME"]) / "config.toml").open("a") as file:
                    file.write(f"\n{block}")
                continue
            lines = [line for line in commands(block) if not installs(line)]
            *before, last = lines
            if not last.startswith("flower-"):
                # each block is typed in the first folder
                last += QUICK * last.startswith("leakgauge")
                said = home.ran("\n".join(["set -e", *before, last]), tmp_path)
                continue
            log = tmp_path / f"{number}.log"
            until = "startup complete" if "superlink" in last else "SuperNode ID"
            line = "\n".join(["set -e", *before, f"exec {last}"])
            home.start(line, tmp_path, log, until=until)
            hospitals += last.partition("partition-id=")[2][:1]
        shown = [one.read_text("utf-8", errors="replace") for one in tmp_path.glob("*.log")]
    assert hospitals == "01"
    for name in ("hospital-a", "hospital-b"):
        assert any(f"kept in {tmp_path / name / 'kept'}" in one for one in shown), name
    kept = read_kept(tmp_path / "app" / "kept-a", tmp_path / "app" / "kept-b")
    assert (kept.rounds, kept.clients, len(kept.updates)) == ([1, 2], ["0", "1"], 4)
    found = json.loads(said[said.index("{") :])
    for ask in ("reconstruction", "membership", "property"):
        each = {(one["round"], one["client"]) for one in found[ask]["updates"]}
        assert each == {(1, "0"), (1, "1"), (2, "0"), (2, "1")}, ask
