"""The steps of action.yml, run with bash as on a runner."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from leakgauge.core.rng import stream
from support.tables import frame
from support.workflow import ACTION, Runner

STUB = """#!/usr/bin/env bash
printf '%s\\n' "$@" > words
for ((i = 1; i <= $#; i++)); do
  j=$((i + 1))
  if [ "${!i}" = --markdown ] && [ "$CODE_OF_STUB" != 2 ]; then echo "### body" > "${!j}"; fi
done
echo "error: no such column" >&2
exit "$CODE_OF_STUB"
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Return a runner whose ``leakgauge`` writes its words to a file."""
    monkeypatch.setenv("CODE_OF_STUB", "0")
    return Runner(tmp_path / "work", STUB)


def words(runner: Runner) -> list[str]:
    return (runner.folder / "words").read_text("utf-8").splitlines()


def test_words_and_rules_reach_the_command_as_they_were_written(runner: Runner) -> None:
    code = runner.act(
        audit="people.csv --label 'annual income'\n--secret sex",
        fail_if="advantage.high > 0.5\n\nauroc > 0.9\n",
        fail_if_worse="auroc.difference.low > 0",
        base="kept runs/base",
        junit="junit.xml",
    )
    assert (code, runner.outputs["steps.measure.outputs.exit-code"]) == (0, "0")
    assert words(runner) == [
        "audit", "people.csv", "--label", "annual income", "--secret", "sex",
        "--out", "leakgauge-runs/action", "--markdown", "leakgauge-comment.md",
        "--against", "kept runs/base", "--fail-if", "advantage.high > 0.5",
        "--fail-if", "auroc > 0.9", "--fail-if", "auroc.difference.low > 0",
        "--junit", "junit.xml",
    ]  # fmt: skip
    assert runner.summary == "### body\n"


def test_the_newest_artifact_of_the_base_branch_is_the_reference(runner: Runner) -> None:
    (runner.artifacts / "11" / "leakgauge-run").mkdir(parents=True)
    (runner.artifacts / "12").mkdir()  # its artifact expired
    assert runner.act(audit="people.csv") == 0
    folder = runner.outputs["steps.base.outputs.folder"]
    assert words(runner)[-2:] == ["--against", folder]
    assert folder.endswith("leakgauge-base-11")
    assert Path(folder).is_dir()


def test_a_first_run_says_that_nothing_was_compared(runner: Runner) -> None:
    assert runner.act(audit="people.csv", fail_if_worse="auroc.difference.low > 0") == 0
    assert not {"--against", "--fail-if"} & set(words(runner))
    assert "no finished run of `main` was found. The rules on differences" in runner.summary
    assert "::notice::leakgauge: no finished run of 'main'" in runner.said


@pytest.mark.parametrize("code", [2, 3])
def test_a_failure_is_the_end_of_the_last_step(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setenv("CODE_OF_STUB", str(code))
    assert runner.act(audit="people.csv", base="base") == code
    assert "::error::leakgauge" in runner.said
    said = "did not run (exit code 2)\n\n    error: no such column" if code == 2 else "### body"
    assert said in runner.summary


def test_words_that_cannot_be_split_fail(runner: Runner) -> None:
    assert runner.act(audit="people.csv --label 'income") != 0
    assert "quote" in runner.said


def test_outputs_and_expressions_name_what_exists() -> None:
    text = ACTION.read_text("utf-8")
    action = yaml.safe_load(text)
    steps = {step["id"]: step.get("run", "") for step in action["runs"]["steps"] if "id" in step}
    for name in re.findall(r"inputs\.([\w-]+)", text):
        assert name in action["inputs"]
    for step, name in re.findall(r"steps\.([\w-]+)\.outputs\.([\w-]+)", text):
        assert f'echo "{name}=' in steps[step]


AUDIT = (
    "people.csv --label income --secret smokes --ask property --adversary energies --rounds 1 "
    "--trials 200 --batch-size 4 --shadow 200 --workers 1"
)
WORSE = "property.advantage.difference.low > 0.02"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.calibration
def test_a_change_that_adds_a_leak_fails_and_another_one_does_not(tmp_path: Path) -> None:
    """The base branch, a change of the seed, one that adds a copy of the secret, and a typo."""
    real = Runner(tmp_path / "work")
    people = frame(800).drop(columns=["person", "sex"])
    smokes = stream(0, "secrets").random(len(people)) < 0.5
    people["smokes"] = np.where(smokes, "yes", "no")
    people.to_csv(real.folder / "people.csv", index=False)
    assert real.act(audit=AUDIT, fail_if_worse=WORSE) == 0, real.said
    assert "Not compared" in real.summary
    real.keep("1", "leakgauge-run", "leakgauge-runs/action")

    assert real.act(audit=f"{AUDIT} --seed 1", fail_if_worse=WORSE) == 0, real.said
    assert "### leakgauge: the rules pass" in real.summary
    assert "No difference seen" in real.summary

    people["copy"] = np.where(smokes, 5.0, -5.0)
    people.to_csv(real.folder / "people.csv", index=False)
    leak = {"audit": AUDIT, "out": "leaky", "sarif": "leaks.sarif", "junit": "junit.xml"}
    assert real.act(**leak, fail_if_worse=WORSE, fail_if="auroc.high < 0.1") == 3, real.said
    assert "### leakgauge: a rule fails" in real.summary
    assert "Leaks more" in real.summary
    assert f"| `{WORSE}` | the difference of advantage: property of smokes" in real.summary
    decided = json.loads((real.folder / "leaky" / "compared.json").read_text("utf-8"))
    assert decided["decision"] == "fail"
    assert decided["rules"][0]["figures"][0]["side"] == "difference"
    assert WORSE in html.unescape((real.folder / "junit.xml").read_text("utf-8"))
    assert WORSE in (real.folder / "leaks.sarif").read_text("utf-8")

    typo = real.act(audit=AUDIT, out="typo", fail_if_worse="advantge.difference > 0")
    assert (typo, "did you mean 'advantage'?" in real.summary) == (2, True)
