"""The workflow of docs/how-to/ci.md: its steps run as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from leakgauge.core.rng import stream
from leakgauge.evidence.gate import GATE_FILE
from leakgauge.evidence.rule import parse_rule
from support.tables import frame

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ci.md"
SMALL = ("--batch-size", "4", "--shadow", "200", "--adversary", "energies", "--workers", "1")


def workflow() -> dict[str, Any]:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    return yaml.safe_load(text)


def steps() -> list[dict[str, Any]]:
    return workflow()["jobs"]["leakage"]["steps"]


def test_files_that_are_uploaded_are_those_that_are_written() -> None:
    (measure,) = [one["run"] for one in steps() if "leakgauge audit" in one.get("run", "")]
    words = shlex.split(measure)
    out = words[words.index("--out") + 1]
    kept = "".join(str(one.get("with", {})) for one in steps())
    for path in (f"{out}/{GATE_FILE}", f"{out}/report.html"):
        assert path in kept
    for option in ("--junit", "--sarif"):
        assert words[words.index(option) + 1] in kept


def test_every_rule_of_the_page_has_the_form_of_a_rule() -> None:
    rules = re.findall(r"--fail-if '([^']+)'", PAGE.read_text("utf-8"))
    assert len(rules) > 8
    for text in rules:
        parse_rule(text)


@pytest.mark.slow
@pytest.mark.process
def test_the_steps_of_the_workflow_run(tmp_path: Path) -> None:
    """A secret that follows from a column fails the build; one that follows from none does not."""
    rng = stream(0, "secrets")
    people = frame(1200)
    for secret, code in (("planted", 3), ("none", 0)):
        folder = tmp_path / secret
        folder.mkdir()
        sex = people["sex"] if secret == "planted" else rng.choice(["f", "m"], size=len(people))
        shown = 9.0 * (people["sex"] == "m")
        people.assign(sex=sex, copy=shown).drop(columns="person").to_csv(
            folder / "people.csv", index=False
        )
        for one in steps():
            if "leakgauge " in one.get("run", "") and "pip" not in one["run"]:
                ended = in_a_shell(one["run"], folder)
                assert ended.returncode == code, ended.stdout + ended.stderr
        for name in ("privacy-junit.xml", "privacy.sarif", "leakgauge-runs/privacy/gate.json"):
            assert (folder / name).is_file()


def in_a_shell(step: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A step as a runner runs it, on a smaller model than the page's."""
    program = f"{shlex.quote(sys.executable)} -m leakgauge"
    small = shlex.join(SMALL)
    command = re.sub(r"\bleakgauge audit (\S+)", rf"{program} audit \1 {small}", step)
    return subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder, capture_output=True, text=True, env={**os.environ}, timeout=300,
    )  # fmt: skip
