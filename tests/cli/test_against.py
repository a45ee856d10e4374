"""``audit --against`` and ``compare --fail-if``: exit codes, files, refusals, Markdown."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from leakgauge.evidence.gate import COMPARED_FILE, GATE_FILE
from support.command import Ended, run
from support.gated_audit import audit, write_people

pytestmark = pytest.mark.usefixtures("blank_charts")

WORSE = "advantage.difference.low > 0.02"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, and the same one without the column that tells the secret."""
    folder = tmp_path_factory.mktemp("people")
    table = pd.read_csv(write_people(folder))
    table.drop(columns="copy").to_csv(folder / "clean.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def base(folder: Path) -> Path:
    ended = audit(folder / "clean.csv", "smokes", folder / "base")
    assert ended.returncode == 0, ended.stderr
    return folder / "base"


@pytest.fixture(scope="module")
def leaky(folder: Path, base: Path) -> tuple[Path, Ended]:
    """An audit of the table with the leak, next to the base."""
    words = ("--against", base, "--fail-if", WORSE, "--fail-if", "auroc.value < 0.1",
             "--markdown", folder / "leaky.md")  # fmt: skip
    return folder / "leaky", audit(folder / "people.csv", "smokes", folder / "leaky", *words)


def decision(folder: Path, name: str = COMPARED_FILE) -> dict[str, Any]:
    return json.loads((folder / name).read_text("utf-8"))


def test_an_added_leak_fails_the_audit(leaky: tuple[Path, Ended], base: Path) -> None:
    folder, ended = leaky
    assert ended.returncode == 3, ended.stderr
    for words in ("gate: fail (exit code 3)", "Leaks more", "difference, property of smokes"):
        assert words in ended.stdout
    compared = decision(folder)
    assert (compared["decision"], compared["against"]) == ("fail", str(base))
    (figure,) = compared["rules"][0]["figures"]
    assert figure["value"] == figure["after"]["value"] - figure["before"]["value"]
    own = decision(folder, GATE_FILE)
    assert [one["rule"] for one in own["rules"]] == ["auroc.value < 0.1"]
    assert own["decision"] == "pass"  # a card is about this run alone, and follows from its figures
    made = run("card", folder)
    assert made.returncode == 0, made.stderr
    card = decision(folder, "audit-card.json")
    assert (card["decision"]["decision"], card["decision"]["two_runs"]) == ("pass", "fail")
    assert COMPARED_FILE in card["files"]
    page = (folder / "audit-card.md").read_text("utf-8")
    assert "Rules on this run and a reference decided: **fail**." in page
    assert "| property of smokes |" in page


def test_the_same_run_passes(base: Path, folder: Path) -> None:
    words = ("--against", base, "--fail-if", WORSE, "--json")
    ended = audit(folder / "clean.csv", "smokes", folder / "same", *words)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert {one["verdict"] for one in told["against"]["differences"]} == {"Same run"}
    assert told["gate"]["rules"][0]["figures"][0]["why"] == "both folders hold the same run"
    assert audit(folder / "clean.csv", "smokes", folder / "same").returncode == 0
    assert not (folder / "same" / COMPARED_FILE).exists()  # no rule, no older decision


def test_compare_decides_as_the_audit_did(
    leaky: tuple[Path, Ended], base: Path, tmp_path: Path
) -> None:
    after = tmp_path / "leaky"
    shutil.copytree(leaky[0], after)
    (after / COMPARED_FILE).unlink()
    words = ("compare", base, after, "--fail-if", WORSE, "--markdown", tmp_path / "comment.md")
    ended = run(*words, "--junit", tmp_path / "junit.xml", "--sarif", tmp_path / "sarif.json")
    assert ended.returncode == 3, ended.stderr
    assert decision(after) == decision(leaky[0])
    markdown = (tmp_path / "comment.md").read_text("utf-8")
    assert markdown.startswith("### leakgauge: a rule fails\n")
    assert "The rule 'advantage.difference.low > 0.02' fails" in (
        tmp_path / "sarif.json"
    ).read_text("utf-8")
    assert 'failures="1"' in (tmp_path / "junit.xml").read_text("utf-8")
    quiet = run("compare", base, after, "--json")
    assert (quiet.returncode, "gate" in json.loads(quiet.stdout)) == (0, False)
    assert run("compare", after, base, "--fail-if", WORSE).returncode == 0
    assert run("compare", base, after, "--fail-if", "auroc.before > 0.99").returncode == 0


def test_the_comment_shows_before_after_difference_verdict_and_rules(
    leaky: tuple[Path, Ended],
) -> None:
    text = (leaky[0].parent / "leaky.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| property of smokes")]
    (auroc,) = [line for line in rows if "| AUROC |" in line]
    assert auroc.count(" to ") == 3
    assert auroc.endswith("| Leaks more |")
    assert f"| `{WORSE}` | the difference of advantage: property of smokes" in text
    assert "the data differ" in text


def test_names_in_a_comment_cannot_break_it(folder: Path, tmp_path: Path) -> None:
    """The secret is called like a mention, a cell's end and a tag."""
    name = "@team|<img src=x>"
    table = pd.read_csv(folder / "clean.csv").rename(columns={"smokes": name})
    table.to_csv(tmp_path / "people.csv", index=False)
    words = ("audit", "people.csv", "--label", "income", "--secret", name, "--drop", "coin",
             "--adversary", "energies", "--rounds", 1, "--trials", 60, "--batch-size", 4,
             "--shadow", 200, "--markdown", "alone.md", "--out", "run")  # fmt: skip
    assert run(*words, cwd=tmp_path).returncode == 0
    told = run("compare", "run", "run", "--markdown", "two.md", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    for file in ("alone.md", "two.md"):
        text = (tmp_path / file).read_text("utf-8")
        shown = [line for line in text.splitlines() if not line.startswith("    ")]
        assert not any("@" in line or "<img" in line for line in shown)
        columns = {line.count("|") - line.count("\\|") for line in shown if line[:1] == "|"}
        assert columns in ({5}, {7})


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--against", "none-such"), "no such folder: 'none-such'"),
        (("--against", "base", "--fail-if", "psnr.difference > 1"), "measures 'psnr'"),
        (("--against", "base", "--fail-if", "advantge.difference > 0"), "'advantage'?"),
        (("--against", "base", "--out", "base"), "--against and --out are both 'base'"),
        (("--against", "base", "--ask", "layers"), "which asked inference; nothing of that"),
        (("--against", "base", "--markdown", "base"), "--markdown is 'base', a folder"),
        (("--fail-if", WORSE), "name the other one by audit --against BASE"),
        (("--markdown", "a.md", "--junit", "a.md"), "--junit and --markdown are both 'a.md'"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_run(
    folder: Path, base: Path, words: tuple[str, ...], says: str
) -> None:
    given = ("--label", "income", "--secret", "smokes", "--drop", "coin", "--trials", "60")
    out = () if "--out" in words else ("--out", "never")
    ended = run("audit", "clean.csv", *given, *out, *words, cwd=folder)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr
    assert not (folder / "never").exists()


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("advantage > 0.1", "of which run?"),
        ("membership.auroc.difference > 0", "membership is not asked"),
        ("success_most_at_risk.difference > 0", "does not have it"),
    ],
)
def test_compare_refuses_a_rule_about_nothing(base: Path, rule: str, says: str) -> None:
    ended = run("compare", base, base, "--fail-if", rule)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr
