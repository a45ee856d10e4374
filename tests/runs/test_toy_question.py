"""A question of another package: one folder and one entry point, and everything has it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from leakgauge.catalog import GROUP
from support.packages import TESTS, registered
from support.processes import kill

PROGRAM = [sys.executable, "-m", "leakgauge"]
ROOT = TESTS.parent


@pytest.fixture
def toy(tmp_path: Path) -> dict[str, str]:
    return registered(tmp_path / "site", GROUP, {"toy": "support.toy:QUESTION"})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    pd.DataFrame({"a": range(30), "b": [1, 2] * 15}).to_csv(path, index=False)
    return path


def leakgauge(env: dict[str, str], folder: Path, *words: object) -> subprocess.CompletedProcess:
    command = [*PROGRAM, *map(str, words)]
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=120)


def test_an_audit_asks_it(toy: dict[str, str], table: Path, tmp_path: Path) -> None:
    done = leakgauge(
        toy, tmp_path, "audit", table, "--ask", "toy", "--set", "toy.factor=2", "--out", "o",
        "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["toy"] == {"count": 60.0}
    assert answer["summary"][0]["verdict"] == "Counted"
    assert answer["repeat"] == f"leakgauge audit {table} --ask toy --set toy.factor=2"
    page = (tmp_path / "o" / "report.html").read_text()
    assert 'id="toy"' in page
    assert "There are 60 records." in page


def test_the_repeat_command_repeats_it(toy: dict[str, str], table: Path, tmp_path: Path) -> None:
    words = ("audit", table, "--ask", "toy", "--seed", 3, "--set", "toy.factor=5", "--json")
    first = json.loads(leakgauge(toy, tmp_path, *words, "--out", "o").stdout)
    again = first["repeat"].split()[1:]
    second = json.loads(leakgauge(toy, tmp_path, *again, "--json", "--out", "p").stdout)
    assert second["toy"] == first["toy"] == {"count": 150.0}


def test_it_is_among_all(toy: dict[str, str], table: Path, tmp_path: Path) -> None:
    done = leakgauge(toy, tmp_path, "audit", table, "--ask", "all", "--json", "--out", "o")
    answer = json.loads(done.stdout)
    assert answer["toy"] == {"count": 30.0}
    assert any(line.startswith("`user`: ") for line in answer["not_asked"])


def test_a_grid_asks_it_and_report_rebuilds_it(
    toy: dict[str, str], table: Path, tmp_path: Path
) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        f"name: g\ngrids:\n  - {{ask: toy, data: {table}, factor: [1, 2, 3]}}\n"
        "paper:\n  - {where: {factor: 2}, value: 61}\n"
    )
    done = leakgauge(toy, tmp_path, "run", grid, "--set", "seed=0,1", "--json", "--out", "o")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    figures = {(one["factor"], one["seed"]): one["measurements"] for one in answer["cells"]}
    assert len(figures) == 6
    assert figures[3, 1]["count"]["value"] == 90.0
    assert answer["compare"][0]["difference"] == -1.0
    page = tmp_path / "o" / "report.html"
    before = page.read_text()
    page.unlink()
    assert leakgauge(toy, tmp_path, "report", "o").returncode == 0
    assert page.read_text() == before


def test_it_survives_a_kill(toy: dict[str, str], table: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    slow = {**toy, "TOY_LOG": str(log), "TOY_SECONDS": "1.5"}
    words = ["audit", str(table), "--ask", "toy", "--workers", "1", "--out", "o"]
    running = subprocess.Popen(
        [*PROGRAM, *words],
        env=slow,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not log.is_file() or log.read_text().split() != ["1", "2"]:
        assert running.poll() is None
        time.sleep(0.05)
    assert kill(running)
    done = leakgauge({**toy, "TOY_LOG": str(log)}, tmp_path, *words, "--json")
    assert json.loads(done.stdout)["toy"] == {"count": 30.0}
    assert log.read_text().split() == ["1", "2", "2", "3"]  # the first step was kept


def test_no_other_file_knows_it() -> None:
    """Adding the toy touched its own folder and the tests alone."""
    words = (b"toy", b"Toy")
    knowing = [
        path
        for path in (ROOT / "src").rglob("*.py")
        if any(one in path.read_bytes() for one in words)
    ]
    assert knowing == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ask", "toys"), "did you mean 'toy'?"),
        (("--ask", "toy", "--set", "toy.factr=1"), "did you mean 'factor'?"),
        (("--ask", "toy", "--set", "toy.factor=x"), "expected a whole number of 1 or more"),
        (("--ask", "toy", "--set", "toy.factor=0"), "expected a whole number of 1 or more"),
        (("--ask", "toy", "--set", "factor=1"), "expected QUESTION.KEY=VALUE"),
        (("--ask", "toy", "--rounds", "2"), "--rounds changes nothing for --ask toy"),
    ],
)
def test_refusals_are_one_line(
    toy: dict[str, str], table: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = leakgauge(toy, tmp_path, "audit", table, *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
