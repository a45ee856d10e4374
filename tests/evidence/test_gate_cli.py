"""``--fail-if``, ``--junit`` and ``--sarif`` as a build meets them: exit codes and files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from junitparser import Error, Failure, JUnitXml, Properties, Skipped
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as SarifLog

import leakgauge as lg
from leakgauge.catalog import questions
from leakgauge.evidence.evaluation import evaluate_rules
from leakgauge.evidence.gate import GATE_FILE
from leakgauge.evidence.junit import as_junit
from leakgauge.evidence.parts import parts_of_audit
from support.command import Ended, run
from support.gated_audit import audit, write_people

pytestmark = pytest.mark.usefixtures("blank_charts")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_people(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="module")
def planted(table: Path) -> tuple[Path, Ended]:
    """A run whose secret is in the model's inputs, with rules checked at its end."""
    words = ("--fail-if", "advantage > 0.3", "--junit", "ci/junit.xml", "--sarif", "ci/sarif.json")
    return table.parent / "planted", audit(table, "smokes", table.parent / "planted", *words)


@pytest.fixture(scope="module")
def calm(table: Path) -> tuple[Path, Ended]:
    """A run whose secret nothing can tell, with an error message for another metric."""
    words = ("--fail-if", "property.auroc > 0.95", "--json")
    return table.parent / "calm", audit(table, "coin", table.parent / "calm", *words)


def gate_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / GATE_FILE).read_text("utf-8"))


def test_a_planted_leak_fails(planted: tuple[Path, Ended]) -> None:
    folder, ended = planted
    assert ended.returncode == 3, ended.stderr
    assert "gate: fail (exit code 3)" in ended.stdout
    decision = gate_in(folder)
    assert decision["decision"] == "fail"
    (rule,) = decision["rules"]
    (figure,) = rule["figures"]
    assert (rule["rule"], figure["outcome"], figure["end"]) == (
        "advantage > 0.3",
        "tripped",
        "high",
    )
    assert figure["value"] > 0.8


def test_no_leak_and_enough_data_pass(calm: tuple[Path, Ended]) -> None:
    folder, ended = calm
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["gate"] == gate_in(folder)
    assert told["gate"]["decision"] == "pass"


def test_no_leak_and_too_little_data_fail(calm: tuple[Path, Ended]) -> None:
    """The rules of a finished folder are checked again; nothing is computed."""
    folder, _ = calm
    (rule,) = gate_in(folder)["rules"]
    (figure,) = rule["figures"]
    high, least = figure["high"], figure["smallest_detectable"]
    assert high < least  # else no threshold lies between them
    between = f"auroc > {(high + least) / 2}"
    ended = run("report", folder, "--fail-if", between)
    assert ended.returncode == 3, ended.stderr
    assert "too little data" in ended.stdout
    assert "use more trials or records" in ended.stdout
    assert gate_in(folder)["rules"][0]["figures"][0]["outcome"] == "too little data"
    assert run("report", folder).returncode == 0
    assert gate_in(folder)["decision"] == "fail"  # a report without rules keeps the decision
    assert run("report", folder, "--fail-if", f"auroc > {least}").returncode == 0
    assert gate_in(folder)["decision"] == "pass"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("advantge > 0.05", "did you mean 'advantage'?"),
        ("guarantee.epsilon > 1", "guarantee is not asked"),
        ("advantage > x", "'x' is not a number"),
        ("advantage < 0.05", "write '>'"),
    ],
)
def test_a_wrong_rule_is_refused_before_the_run(
    table: Path, tmp_path: Path, rule: str, said: str
) -> None:
    ended = audit(table, "coin", tmp_path / "run", "--fail-if", rule)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_metric_that_was_not_measured_is_no_pass(calm: tuple[Path, Ended]) -> None:
    folder, _ = calm
    ended = run("report", folder, "--fail-if", "success_most_at_risk > 0.9")
    assert ended.returncode == 2
    assert "'success_most_at_risk' was not measured" in ended.stdout


def test_a_run_without_a_rule_removes_an_older_decision(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert audit(table, "coin", out, "--fail-if", "auroc > 0.99").returncode == 0
    assert (out / GATE_FILE).exists()
    assert audit(table, "coin", out).returncode == 0
    assert not (out / GATE_FILE).exists()


def test_a_broken_promise_fails_without_a_rule(table: Path, tmp_path: Path) -> None:
    module = f"leaky_{abs(hash(tmp_path)) % 10**8}"
    (table.parent / f"{module}.py").write_text(
        "def release(grads, generator):\n    return {k: v[0] for k, v in grads.items()}\n"
    )
    words = (
        "guarantee", table.name, "--attribute", "smokes", "--label", "income", "--clip", 1,
        "--noise", 20, "--trials", 200, "--canary", "random", "--junit", tmp_path / "junit.xml",
    )  # fmt: skip
    right = run(*words, "--out", tmp_path / "right", cwd=table.parent)
    assert right.returncode == 0, right.stderr
    own = ("--mechanism", f"{module}:release", "--out", tmp_path / "broken")
    ended = run(*words, *own, cwd=table.parent)
    assert ended.returncode == 3, ended.stderr
    assert "guarantee: The promise does not hold" in ended.stdout
    assert gate_in(tmp_path / "broken")["broken"][0]["question"] == "guarantee"
    (case,) = next(iter(JUnitXml.fromfile(str(tmp_path / "junit.xml"))))
    assert [one.type for one in case.result] == ["broken promise"]


def test_junit_has_a_case_for_each_question_and_defense(
    planted: tuple[Path, Ended], calm: tuple[Path, Ended], tmp_path: Path
) -> None:
    read = JUnitXml.fromfile(str(planted[0].parent / "ci" / "junit.xml"))
    assert (read.tests, read.failures, read.errors, read.skipped) == (1, 1, 0, 0)
    (case,) = next(iter(read))
    assert (case.classname, case.name) == ("leakgauge.inference", "property of smokes, no defense")
    (failure,) = case.result
    assert isinstance(failure, Failure)
    assert failure.message.startswith("advantage > 0.3: the upper end")
    names = {one.name for one in case.child(Properties)}
    assert "auroc (static, energies, headline)" in names
    run("report", calm[0], "--fail-if", "auroc > 0.95", "--junit", tmp_path / "calm.xml")
    (case,) = next(iter(JUnitXml.fromfile(str(tmp_path / "calm.xml"))))
    assert case.is_passed


def test_junit_tells_what_is_refused_and_not_asked(table: Path, tmp_path: Path) -> None:
    people = lg.load(str(table), label="income", secret="coin", drop=["smokes"])
    result = lg.audit(people, "property", rounds=1, trials=60, batch_size=4, shadow=200,
                      adversaries="energies", out=tmp_path / "run")  # fmt: skip
    described = replace(
        result.run.description,
        cells=("inference", "membership"),
        notes=("`reconstruction`: no <images> & \x00 here",),
    )
    audited = replace(result.run, description=described, refused={"membership": "too few records"})
    parts = parts_of_audit(audited, result.sections, questions())
    text = as_junit(parts, evaluate_rules([], parts))
    (suite,) = JUnitXml.fromstring(text.encode())
    found = {case.classname: case.result for case in suite}
    assert isinstance(found["leakgauge.membership"][0], Error)
    assert isinstance(found["leakgauge.not asked"][0], Skipped)
    assert (suite.tests, suite.errors, suite.skipped) == (3, 1, 1)
    assert result.gate("auroc > 0.99", "property.success.value > 0.9").passed
    assert result.gate("auroc.value > 0.1").exit_code == 3
    with pytest.raises(lg.InputError, match="did you mean 'auroc'"):
        result.gate("auorc > 0.5")


def sarif(path: Path) -> dict[str, Any]:
    """A log, as SARIF 2.1.0's own schema (from which the models are generated) allows it."""
    log = json.loads(path.read_text("utf-8"))
    SarifLog.model_validate(log)
    (one,) = log["runs"]
    names = [rule["id"] for rule in one["tool"]["driver"]["rules"]]
    assert len(set(names)) == len(names)
    for result in one["results"]:
        assert names[result["ruleIndex"]] == result["ruleId"]
    return one


def test_sarif_is_valid_and_names_the_data(
    table: Path, planted: tuple[Path, Ended], tmp_path: Path
) -> None:
    found = sarif(table.parent / "ci" / "sarif.json")
    (result,) = found["results"]
    assert (result["ruleId"], result["level"]) == ("inference", "error")
    assert "The rule 'advantage > 0.3' fails" in result["message"]["text"]
    assert "95 % interval" in result["message"]["text"]
    (place,) = result["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "people.csv"
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "inference/property/smokes/none"
    folder, _ = planted
    run("report", folder, "--sarif", tmp_path / "quiet.json", cwd=folder.parent)
    (result,) = sarif(tmp_path / "quiet.json")["results"]
    assert result["level"] == "warning"  # no rule: the report's own verdict


def test_fingerprints_are_of_the_settings_and_not_of_the_figures(
    planted: tuple[Path, Ended], calm: tuple[Path, Ended], tmp_path: Path
) -> None:
    rule = ("--fail-if", "auroc > 0.1", "--sarif")
    prints = []
    for folder, name in ((planted[0], "a"), (planted[0], "b"), (calm[0], "c")):
        run("report", folder, *rule, tmp_path / name)
        prints.append(sarif(tmp_path / name)["results"][0]["partialFingerprints"])
    assert prints[0] == prints[1]
    assert prints[0] != prints[2]


def test_a_valid_log_is_told_from_a_wrong_one(table: Path, planted: tuple[Path, Ended]) -> None:
    log = json.loads((table.parent / "ci" / "sarif.json").read_text("utf-8"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(ValueError, match="level"):
        SarifLog.model_validate(log)


GRID = """
name: tiny
grids:
  - data: {data}
    label: income
    secret: {secret}
    drop: [[{other}]]
    adversary: energies
    rounds: 1
    trials: 60
    batch_size: 4
    shadow: 200
    seed: [0, 1]
"""


def test_cells_of_a_grid_are_judged(table: Path, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(GRID.format(data=table, secret="smokes", other="coin"))
    out = tmp_path / "out"
    words = ("--fail-if", "advantage > 0.3", "--junit", tmp_path / "grid.xml",
             "--sarif", tmp_path / "grid.json", "--out", out)  # fmt: skip
    ended = run("run", file, *words)
    assert ended.returncode == 3, ended.stderr
    (suite,) = JUnitXml.fromfile(str(tmp_path / "grid.xml"))
    assert [case.name for case in suite] == [
        f"property of smokes, no defense (seed {seed})" for seed in (0, 1)
    ]
    assert len(sarif(tmp_path / "grid.json")["results"]) == 2
    assert run("report", out, "--fail-if", "auroc.low < 0.5").returncode == 0
    assert run("run", file, "--fail-if", "psnr > 1", "--out", out).returncode == 2
