"""The workflow and the job of docs/how-to/ci.md: their steps run as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from leakgauge.core.rng import stream
from leakgauge.evidence.rule import parse_rule
from support.tables import frame
from support.workflow import SOURCE, Runner

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ci.md"
SMALL = ("--batch-size", "4", "--shadow", "200", "--adversary", "energies", "--workers", "1")
PROGRAM = (
    f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} -m leakgauge "$1" '
    f'{shlex.join(SMALL)} "${{@:2}}"\n'
)
"""The command, on a smaller model than the page's."""

CURL = """#!/usr/bin/env bash
# Stands in for curl: gives the zip of the base branch if there is one, and keeps a posted note.
for ((i = 1; i <= $#; i++)); do
  j=$((i + 1))
  case "${!i}" in
    --output) [ -e served.zip ] && cp served.zip "${!j}"; exit ;;
    --data-urlencode) note="${!j}" ;;
  esac
done
echo "${!#}" > noted
cat "${note#body@}" >> noted
"""


def blocks() -> list[dict[str, Any]]:
    """Return the workflow for GitHub and the job for GitLab."""
    found = re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert len(found) == 2
    return [yaml.safe_load(text) for text in found]


def step() -> dict[str, Any]:
    """Return the step of the workflow that uses the action."""
    steps = blocks()[0]["jobs"]["leakage"]["steps"]
    (one,) = [each for each in steps if each.get("id") == "leakgauge"]
    return one


def people(*, leak: bool) -> pd.DataFrame:
    table = frame(1200).drop(columns="person")
    sex = stream(0, "secrets").random(len(table)) < 0.5
    table["height"] = stream(1, "heights").normal(170, 7, len(table))
    table["sex"] = np.where(sex, "f", "m")
    return table.assign(copy=np.where(sex, 9.0, 0.0)) if leak else table


def test_the_workflow_gives_the_action_what_it_knows() -> None:
    inputs = step()["with"]
    assert {"audit", "fail-if", "fail-if-worse"} <= set(inputs)
    assert shlex.split(inputs["audit"])[0] == "people.csv"
    (upload,) = [one for one in blocks()[0]["jobs"]["leakage"]["steps"]
                 if "upload-sarif" in one.get("uses", "")]  # fmt: skip
    assert upload["with"]["sarif_file"] == inputs["sarif"]


def test_every_rule_of_the_page_has_the_form_of_a_rule() -> None:
    text = PAGE.read_text("utf-8")
    rules = re.findall(r"--fail-if '([^']+)'", text)
    rules += [line for name in ("fail-if", "fail-if-worse") for line in
              step()["with"][name].strip().splitlines()]  # fmt: skip
    assert len(rules) > 12
    for rule in rules:
        parse_rule(rule)
    required = re.findall(r'require\("([^"]+)"', text)
    assert len(required) > 2
    for rule in required:
        parse_rule(rule, required=True)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.calibration
def test_the_action_of_the_workflow_runs(tmp_path: Path) -> None:
    """A secret that follows from a column fails the build; one that follows from none does not."""
    given = {name.replace("-", "_"): text for name, text in step()["with"].items()}
    runner = Runner(tmp_path / "work", PROGRAM)
    for run, leak in (("1", False), ("2", True)):
        people(leak=leak).to_csv(runner.folder / "people.csv", index=False)
        assert runner.act(**given) == (3 if leak else 0), runner.said
        for name in (given["junit"], given["sarif"], "leakgauge-comment.md"):
            assert (runner.folder / name).is_file()
        runner.keep(run, "leakgauge-run", "leakgauge-runs/action")
    assert "Leaks more" in runner.summary


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.calibration
def test_the_job_for_gitlab_runs(tmp_path: Path) -> None:
    """The job of the base branch, then that of a merge request that adds a leak."""
    _, gitlab = blocks()
    script = "\n".join(gitlab["privacy"]["script"])
    folder, tools = tmp_path / "work", tmp_path / "bin"
    for each in (folder, tools):
        each.mkdir()
    python = f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} "$@"\n'
    pip = "#!/usr/bin/env bash\n"
    for name, text in (("leakgauge", PROGRAM), ("curl", CURL), ("python", python), ("pip", pip)):
        (tools / name).write_text(text, "utf-8")
        (tools / name).chmod(0o755)
    env = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE),
        "CI_DEFAULT_BRANCH": "main", "LEAKGAUGE_TOKEN": "secret", "PROJECT": "https://git/api/1",
    }  # fmt: skip
    for number, leak in (("", False), ("7", True)):
        people(leak=leak).to_csv(folder / "people.csv", index=False)
        ended = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script], cwd=folder, capture_output=True, text=True,
            env={**env, "CI_MERGE_REQUEST_IID": number}, timeout=300,
        )  # fmt: skip
        assert ended.returncode == (3 if leak else 0), ended.stdout + ended.stderr
        if not leak:
            assert "no run of main to compare with" in ended.stdout
            kept = ["-m", "zipfile", "-c", "served.zip", "leakgauge-run"]
            subprocess.run([sys.executable, *kept], cwd=folder, check=True)
            (folder / "leakgauge-run").rename(tmp_path / "kept")
    note = (folder / "noted").read_text("utf-8")
    assert note.startswith("https://git/api/1/merge_requests/7/notes\n### leakgauge: a rule fails")
    assert "Leaks more" in note
