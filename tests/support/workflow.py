"""Run the steps of a composite action as GitHub's runner does, with bash in a folder."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ACTION = Path(__file__).parents[2] / "action.yml"
SOURCE = ACTION.parent / "src"
GH = """#!/usr/bin/env bash
# Stands in for GitHub's command line: artifacts are folders of $ARTIFACTS/RUN/NAME.
set -e
case "$1 $2" in
  "run list") ls -r "$ARTIFACTS" ;;
  "run download") cp -r "$ARTIFACTS/$3/$7" "$9" ;;
  *) exit 1 ;;
esac
"""
LEAKGAUGE = f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} -m leakgauge "$@"\n'


@dataclass
class Runner:
    """A checkout in which an action runs.

    Attributes:
        folder: the working folder.
        program: the text of the script ``leakgauge``.
        outputs: outputs of the steps of the last run, by ``steps.ID.outputs.NAME``.
        said: what the steps of the last run printed.
    """

    folder: Path
    program: str = LEAKGAUGE
    outputs: dict[str, str] = field(default_factory=dict)
    said: str = ""

    def __post_init__(self) -> None:
        for name in ("bin", "artifacts", "temp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for name, text in (("gh", GH), ("leakgauge", self.program)):
            (self.folder / "bin" / name).write_text(text, "utf-8")
            (self.folder / "bin" / name).chmod(0o755)

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    @property
    def summary(self) -> str:
        return (self.folder / "temp" / "summary").read_text("utf-8")

    def act(self, **given: str) -> int:
        """Run the steps of the action with inputs, and return the exit code of its last one."""
        action = yaml.safe_load(ACTION.read_text("utf-8"))
        inputs = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
        inputs |= {name.replace("_", "-"): value for name, value in given.items()}
        assert set(inputs) == set(action["inputs"])
        self.outputs, self.said = {f"inputs.{name}": text for name, text in inputs.items()}, ""
        self.outputs["github.token"] = "secret"
        (self.folder / "temp" / "summary").write_text("", "utf-8")
        code = 0
        for step in action["runs"]["steps"]:
            if "run" in step and code == 0:
                code = self._step(step)
        return code

    def keep(self, run: str, artifact: str, out: str) -> None:
        """Keep a folder as the artifact of a run."""
        (self.artifacts / run).mkdir()
        (self.folder / out).rename(self.artifacts / run / artifact)

    def _step(self, step: Mapping[str, Any]) -> int:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "an input in a script is code; pass it in env"
        temp = self.folder / "temp"
        (temp / "output").write_text("", "utf-8")
        (temp / "script").write_text(step["run"], "utf-8")
        ended = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(temp / "script")],
            cwd=self.folder, env=self._env(step), capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        self.said += ended.stdout + ended.stderr
        for line in (temp / "output").read_text("utf-8").splitlines():
            name, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{name}"] = value
        return ended.returncode

    def _env(self, step: Mapping[str, Any]) -> dict[str, str]:
        temp = self.folder / "temp"
        given = {name: self._filled(str(one)) for name, one in step.get("env", {}).items()}
        return {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCE),
            "ARTIFACTS": str(self.artifacts),
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "GITHUB_BASE_REF": "main",
            "GITHUB_OUTPUT": str(temp / "output"),
            "GITHUB_REF_NAME": "7/merge",
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_STEP_SUMMARY": str(temp / "summary"),
            "GITHUB_WORKFLOW": "privacy",
            "RUNNER_TEMP": str(temp),
            **given,
        }

    def _filled(self, text: str) -> str:
        """Return text with the values of expressions, of which an unknown one fails."""
        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: self.outputs[found[1]], text)
