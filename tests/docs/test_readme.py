"""Check that the README is short, and that its commands and examples run."""

import re
import runpy
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

import leakgauge
from support.bound import identity
from support.command import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "report.png"
INSTALLS = ("make demo", "pip install -c constraints.txt .")
"""Commands that install; .ci/run and the Makefile run them instead of this test."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW_COMMAND = re.compile(r"^\|.*`(leakgauge [^`]+)`", re.MULTILINE)
REPORT = re.compile(r"report: (\S+)")

SMALL = ("--rounds", "1", "--trials", "120", "--shadow", "200", "--hidden", "8")
PROPORTION = ("--ratio-bins", "2", "--trials", "100")  # each range needs eight groups of records
SMALL_TIMELINE = ("checkpoints=0,2", "critic_iterations=10", "width=16", "records=800")
SMALL_GRID = (
    "rounds=1", "trials=120", "shadow=200", "hidden=8", "adversary=energies", "batch_size=64",
)  # fmt: skip
SMALL_PYTHON = {
    "inference.rounds": 1,
    "inference.trials": 120,
    "inference.shadow": 200,
    "inference.hidden": [8],
    "inference.batch_size": 64,  # fewer steps
    "inference.adversary": ["energies"],
    "reconstruction.iterations": 2,
}


def paragraphs(text: str) -> list[str]:
    """Return paragraphs and list items, without code, tables, headings and pictures."""
    prose: list[str] = [""]
    for line in FENCE.sub("", text).splitlines():
        if not line.strip() or line.startswith(("#", "|", "![")):
            prose.append("")
        elif line.startswith("- "):
            prose.append(line[2:])
        else:
            prose[-1] += f" {line}"
    return [one.strip() for one in prose if one.strip()]


def fenced(kind: str) -> list[str]:
    return [body for language, body in FENCE.findall(README) if language == kind]


def typed(block: str) -> list[str]:
    """Return the commands of a console block, without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    split = [shlex.split(one[2:], comments=True) for one in lines if one.startswith("$ ")]
    return [shlex.join(words) for words in split]


COMMANDS = [typed(block) for block in fenced("console")]
CASES = [
    *([one for one in block if one not in INSTALLS] for block in COMMANDS),
    *([one] for one in ROW_COMMAND.findall(README)),
]
CASES = [case for case in CASES if case]
COVERED = (  # by tests of the questions, of the command line and of runs
    "audit randhie --ask all",
    "audit randhie --ask reconstruction --set reconstruction.images",
    *(f"audit randhie --ask {one}" for one in ("property", "attribute", "proportion", "layers")),
    "audit randhie --ask timeline",
    "audit randhie --defense prune",
    "run experiments/demo.yaml",
)


def is_covered(case: list[str]) -> bool:
    """Return whether other tests do what a row's command does."""
    return case[0].removeprefix("leakgauge ").startswith(COVERED)


def module_file(code: str) -> str:
    """Return the file that the first comment of an example names: ``# my_module.py: ...``."""
    return code.split(maxsplit=2)[1].rstrip(":")


MODULES = [one for one in fenced("python") if one.startswith("# ")]
EXAMPLES = [one for one in fenced("python") if not one.startswith("# ")]


def values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


def small(words: list[str]) -> list[str]:
    """Return options that shorten a command to seconds."""
    command = words[0]
    if command == "run":
        return [part for one in SMALL_GRID for part in ("--set", one)]
    if command == "invert":
        return ["--iterations", "5"]
    if command == "guarantee":
        return ["--trials", "200", "--canary", "random"]
    return small_audit(values(words, "--ask") or ["property"]) if command == "audit" else []


def small_audit(asks: list[str]) -> list[str]:
    everything = "all" in asks
    options = ["--workers", "1"]
    if everything or set(asks) - {
        "reconstruction",
        "guarantee",
        "membership",
        "layers",
        "timeline",
    }:
        options += SMALL
    if asks == ["membership"]:
        options += ["--adversary", "gradients:epochs=1"]
        options += ["--rounds", "1", "--hidden", "8"]
    if everything:  # the fastest of those that each question has
        options += ["--set", "inference.adversary=energies", "--set", "membership.adversary=loss"]
    if everything or "membership" in asks:
        options += ["--set", "membership.size=200"]
    if asks == ["layers"]:
        options += ["--trials", "120", "--adversary", "logistic"]
    if everything or "layers" in asks:
        options += ["--set", "layers.shadow_batches=60", "--set", "layers.held_out=40"]
        options += ["--set", "layers.adversary=logistic"] if everything else []
    if everything or "timeline" in asks:
        options += [f"--set=timeline.{one}" for one in SMALL_TIMELINE]
    if everything or "proportion" in asks:
        options += PROPORTION
    if asks == ["property"]:  # the fastest adversary
        options += ["--adversary", "energies"]
    if set(asks) & {"all", "property", "attribute"}:  # fewer steps
        options += ["--set", "inference.batch_size=64"]
    if asks == ["user"]:  # otherwise the network trains for half a minute
        options += ["--adversary", "encoder:epochs=1"]
    if everything or "reconstruction" in asks:
        options += ["--set", "reconstruction.iterations=5", "--set", "reconstruction.images=4"]
    if everything or "guarantee" in asks:
        options += ["--set", "guarantee.trials=200", "--set", "guarantee.canary=random"]
        options += ["--set", "guarantee.private=500"]
    return options


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a working folder with the files that the README's examples read."""
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    for code in MODULES:
        (tmp_path / module_file(code)).write_text(code, encoding="utf-8")
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 100
    lengths = [len(one.split()) for one in paragraphs(README)]
    assert statistics.median(lengths) <= 25
    assert max(lengths) <= 70


def test_paragraphs_are_the_prose() -> None:
    text = "# Head\n\nOne two\nthree.\n\n| a | b |\n\n```sh\n$ x\n```\n- item\n- other one\n"
    assert paragraphs(text) == ["One two three.", "item", "other one"]


def test_the_architecture_page_is_short() -> None:
    assert len((ROOT / "docs" / "architecture.md").read_text("utf-8").splitlines()) <= 120


def test_the_picture_is_small() -> None:
    assert f"]({PICTURE.relative_to(ROOT).as_posix()})" in README
    assert 0 < PICTURE.stat().st_size < 150_000


def test_every_command_is_run_or_installs() -> None:
    every = [one for block in COMMANDS for one in block]
    assert set(INSTALLS) <= set(every)
    assert [one for one in every if one not in INSTALLS and not one.startswith("leakgauge ")] == []
    assert (ROOT / "constraints.txt").is_file()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_demo_runs_the_demo() -> None:
    recipe = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", "demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert recipe.stdout.rstrip().endswith("leakgauge demo")


@pytest.mark.parametrize("case", [one for one in CASES if is_covered(one)], ids=" ".join)
def test_commands_are_taken(case: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read and checked up to where they would measure."""
    assert identity(folder, monkeypatch, *shlex.split(case[0])[1:])


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case[0][len("leakgauge ") :][:60],
            marks=pytest.mark.slow if is_covered(case) else (),
        )
        for case in CASES
    ],
)
def test_commands_run(case: list[str], folder: Path) -> None:
    for command in case:
        words = shlex.split(command)[1:]
        ended = run(*words, *small(words), cwd=folder)
        assert ended.returncode == 0, ended.stderr
        reports = REPORT.findall(ended.stdout)
        assert len(reports) == 1, ended.stdout
        assert (folder / reports[0]).stat().st_size > 1000


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_python_example_runs(
    code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leakgauge, "audit", partial(leakgauge.audit, settings=SMALL_PYTHON))
    example = folder / "example.py"
    example.write_text(code, encoding="utf-8")
    names = runpy.run_path(str(example))
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines()] == ["property", "reconstruction"]
    assert set(names["figures"]["question"]) == {"inference", "reconstruction"}
    assert (folder / "report.html").stat().st_size > 1000
