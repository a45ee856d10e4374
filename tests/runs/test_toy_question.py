"""A question of another package needs one folder and one entry point to work everywhere."""

import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from leakgauge import catalog
from leakgauge.catalog import GROUP
from support import command
from support.packages import TESTS, registered
from support.processes import begin

ROOT = TESTS.parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process with the toy installed."""
    return registered(tmp_path / "site", GROUP, {"toy": "support.toy:QUESTION"})


@pytest.fixture
def toy(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the toy by its entry point in this process."""
    monkeypatch.syspath_prepend(environment["PYTHONPATH"].split(os.pathsep)[0])
    catalog.questions.cache_clear()
    yield
    catalog.questions.cache_clear()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    pd.DataFrame({"a": range(30), "b": [1, 2] * 15}).to_csv(path, index=False)
    return path


def test_an_audit_asks_it(toy: None, table: Path, tmp_path: Path) -> None:
    words = ("audit", table, "--ask", "toy", "--set", "toy.factor=2", "--out", "o", "--json")
    done = command.run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["toy"] == {"count": 60.0}
    assert answer["summary"][0]["verdict"] == "Counted"
    assert answer["repeat"] == f"leakgauge audit {table} --ask toy --set toy.factor=2"
    page = (tmp_path / "o" / "report.html").read_text()
    assert 'id="toy"' in page
    assert "There are 60 records." in page


def test_the_repeat_command_repeats_it(toy: None, table: Path, tmp_path: Path) -> None:
    words = ("audit", table, "--ask", "toy", "--seed", 3, "--set", "toy.factor=5", "--json")
    first = json.loads(command.run(*words, "--out", "o", cwd=tmp_path).stdout)
    again = first["repeat"].split()[1:]
    second = json.loads(command.run(*again, "--json", "--out", "p", cwd=tmp_path).stdout)
    assert second["toy"] == first["toy"] == {"count": 150.0}


def test_it_is_among_all(toy: None, table: Path, tmp_path: Path) -> None:
    done = command.run("audit", table, "--ask", "all", "--json", "--out", "o", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert answer["toy"] == {"count": 30.0}
    assert any(line.startswith("`user`: ") for line in answer["not_asked"])


def test_a_grid_asks_it_and_report_rebuilds_it(toy: None, table: Path, tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text(
        f"name: g\ngrids:\n  - {{ask: toy, data: {table}, factor: [1, 2, 3]}}\n"
        "paper:\n  - {where: {factor: 2}, value: 61}\n"
    )
    done = command.run("run", grid, "--set", "seed=0,1", "--json", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    figures = {(one["factor"], one["seed"]): one["measurements"] for one in answer["cells"]}
    assert len(figures) == 6
    assert figures[3, 1]["count"]["value"] == 90.0
    assert answer["compare"][0]["difference"] == -1.0
    page = tmp_path / "o" / "report.html"
    before = page.read_text()
    page.unlink()
    assert command.run("report", "o", cwd=tmp_path).returncode == 0
    assert page.read_text() == before


@pytest.mark.process
def test_it_survives_a_kill(
    toy: None,
    environment: dict[str, str],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "log"
    words = ("audit", table, "--ask", "toy", "--workers", "1", "--out", "o")
    monkeypatch.setenv("TOY_LOG", str(log))
    for name, value in (environment | {"TOY_SECONDS": "1.5"}).items():
        monkeypatch.setenv(name, value)
    running = begin(partial(command.run, *words, cwd=tmp_path))
    while not log.is_file() or log.read_text().split() != ["1", "2"]:
        assert running.is_alive()
        time.sleep(0.05)
    running.kill()
    running.join()
    monkeypatch.delenv("TOY_SECONDS")
    done = command.run(*words, "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["toy"] == {"count": 30.0}
    assert log.read_text().split() == ["1", "2", "2", "3"]  # the first step was kept


def test_no_other_file_knows_it() -> None:
    """Only the toy's folder and the tests know the toy."""
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
    toy: None, table: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = command.run("audit", table, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
