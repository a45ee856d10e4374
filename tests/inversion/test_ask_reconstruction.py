"""``leakgauge audit --ask reconstruction`` gives the same results as ``leakgauge invert``."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakgauge.cli import main
from leakgauge.core.rng import stream
from leakgauge.runs.store import read_description

Go = Callable[..., tuple[int, str, str]]
TIMED = ("seconds_per_iteration", "report")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = stream(0, "people"), 60
    frame = pd.DataFrame(
        {
            "height": rng.normal(170, 7, size=n),
            "town": rng.choice(["a", "b", "c"], size=n),
            "sex": np.where(rng.random(n) < 0.5, "f", "m"),
            "income": np.where(rng.random(n) < 0.5, "high", "low"),
            "person": np.arange(n) // 2,
            "salary": rng.normal(size=n),
        }
    )
    frame.loc[50:52, "income"] = None
    path = tmp_path_factory.mktemp("table") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = stream(0, "pictures")
    path = tmp_path_factory.mktemp("pictures") / "faces.npz"
    x = rng.integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    np.savez(path, x=x, y=np.arange(24) % 3, sex=np.arange(24) % 2)
    return path


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Go:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    # The searches themselves are tested elsewhere; here a few steps do.
    monkeypatch.setattr("leakgauge.inversion.words.ITERATIONS", 3)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["leakgauge", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        said = capsys.readouterr()
        return int(done.value.code or 0), said.out, said.err

    return run


def told(go: Go, *words: object) -> dict:
    code, out, err = go(*words, "--json")
    assert code == 0, err
    (line,) = out.splitlines()
    found = json.loads(line, parse_constant=pytest.fail)
    found = found.get("reconstruction", found)  # Each question of an audit has its part.
    for one in (found, *found.get("results", ())):
        for name in TIMED:
            one.pop(name, None)
    return found


REST = ("--group", "person", "--drop", "town", "--drop-missing")
ROLES = ("--label", "income", *REST)
TABLE = (*ROLES, "--hidden", 6, "--seed", 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("audited", "inverted"),
    [
        ((*TABLE, "--batch-size", 3), (*TABLE, "--batch-size", 3, "--images", 9)),
        ((*TABLE, "--adversary", "agic"), (*TABLE, "--method", "agic")),
        (
            (*REST, "--label", "salary", "--bins", "salary=3", "--batch-size", 8),
            (*REST, "--label", "salary", "--bins", "salary=3", "--batch-size", 8),
        ),
        (
            (*TABLE, "--batch-size", 1, "--defense", "sign", "--adversary", "agic"),
            (*TABLE, "--defense", "sign", "--method", "agic"),
        ),
    ],
)
def test_a_table_gives_the_results_of_invert(
    go: Go, table: Path, audited: tuple[object, ...], inverted: tuple[object, ...]
) -> None:
    asked = told(go, "audit", table, "--ask", "reconstruction", *audited)
    images = () if "--images" in inverted else ("--images", asked["images"])
    assert asked == told(go, "invert", table, *inverted, *images)
    assert "psnr" in asked
    assert 0 <= asked["per_image"][0]["columns"] <= 1
    assert "town" not in asked["columns"]


@pytest.mark.slow
def test_images_of_one_batch(go: Go, pictures: Path, tmp_path: Path) -> None:
    where = ("--out", tmp_path / "run")
    batch = ("--batch-size", 16)
    asked = told(go, "audit", pictures, "--label", "y", "--ask", "reconstruction", *batch, *where)
    assert (asked["images"], asked["method"], len(asked["per_image"])) == (16, "leakgauge", 16)
    assert asked["psnr"]["low"] <= asked["psnr"]["value"] <= asked["psnr"]["high"]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 2 * 16  # truth and rebuilt
    again = ("--label", "y", "--images", 16, "--batch-size", 16)
    assert asked == told(go, "invert", pictures, *again)


@pytest.mark.parametrize(
    ("size", "images"), [(1, 8), pytest.param(3, 9, marks=pytest.mark.slow), (8, 8), (9, 9)]
)
def test_whole_batches_of_at_least_eight(go: Go, table: Path, size: int, images: int) -> None:
    words = ("--ask", "reconstruction", "--batch-size", size)
    assert told(go, "audit", table, *TABLE, *words)["images"] == images


@pytest.mark.slow
def test_several_adversaries_and_plain_words(go: Go, table: Path) -> None:
    words = ("audit", table, *TABLE, "--ask", "reconstruction", "--batch-size", 1)
    two = ("--adversary", "exact", "--adversary", "agic")
    assert [one["method"] for one in told(go, *words, *two)["results"]] == ["exact", "agic"]
    out = go(*words, *two)[1]
    rows = [line.split() for line in out.splitlines() if line.startswith("reconstruction")]
    assert [row[1] for row in rows] == ["exact", "agic"]  # the worse for privacy first
    whole = go(*words, *two, "--verbose")[1]
    assert "exact: 100 %" in whole or "exact: 100%" in whole  # one record by division
    assert "agic: " in whole


ASK = ("--ask", "reconstruction")
REFUSED = [
    (("--adversary", "forest"), "attack 'forest' is not known; known: 'dlg'"),
    (("--adversary", "agci"), "attack 'agci' is not known; did you mean 'agic'?"),
    (("--secret", "sex"), "--secret changes nothing"),
    (("--rounds", 10), "--rounds changes nothing"),  # its default, but a user typed it
    (("--rounds", 3), "--rounds changes nothing for --ask reconstruction; leave it out"),
    (("--trials", 100), "--trials changes nothing"),
    (("--shadow", 100), "--shadow changes nothing"),
    (("--stack",), "--stack changes nothing"),
    (("--batches", "fresh"), "--batches changes nothing"),
    (("--prior", "empirical"), "--prior changes nothing"),
    (("--ratio-bins", 3), "--ratio-bins changes nothing"),
    (("--candidates", 3), "--candidates changes nothing"),
    (("--lr", 0.1), "--lr changes nothing"),
    (("--allow-loop",), "--allow-loop changes nothing"),
    (("--batch-size", 0), "--batch-size is 0"),
    (("--bins", "age"), "expected COL=N"),
    (("--label", "incme"), "--label is given 2 times ('income', 'incme'); give it once"),
    (("--defense", "sgn"), "'sgn'"),
    (("--device", "abacus"), "--device abacus cannot be used here"),
]


def refusal(go: Go, *words: object) -> str:
    code, out, err = go(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count(os.linesep) == 1
    return err


@pytest.mark.parametrize(("words", "reason"), REFUSED)
def test_bad_input_is_one_clear_line(
    go: Go, table: Path, words: tuple[object, ...], reason: str
) -> None:
    assert reason in refusal(go, "audit", table, *TABLE, *ASK, *words)


def test_a_task_of_one_s_own_is_for_updates(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom leakgauge import Dataset, Task\n"
        "def build():\n"
        "    task = Task(torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy)\n"
        "    return task, Dataset(torch.rand(9, 3), torch.arange(9) % 2)\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    refused = refusal(go, "audit", "--task", "mine:build", *ASK)
    assert "leakgauge invert --update FILE --task MODULE:FUNCTION" in refused


def test_a_question_that_is_misspelt(go: Go, table: Path) -> None:
    words = ("audit", table, *TABLE, "--ask", "reconstrution")
    assert "did you mean 'reconstruction'?" in refusal(go, *words)


@pytest.mark.parametrize("command", ["audit", "invert"])
def test_hidden_is_for_tables(go: Go, pictures: Path, command: str) -> None:
    ask = ASK if command == "audit" else ()
    words = (command, pictures, "--label", "y", "--hidden", 5, *ask)
    assert "--hidden is about the network for tables" in refusal(go, *words)


@pytest.mark.slow
def test_the_page_s_command_repeats_the_run(go: Go, pictures: Path, tmp_path: Path) -> None:
    """No option stands in it that would be refused."""
    words = ("audit", pictures, "--label", "y", *ASK, "--batch-size", 4, "--out", tmp_path / "run")
    first = told(go, *words)
    repeated = read_description(tmp_path / "run").repeat.split()[1:]
    assert repeated[0] == "audit"
    assert told(go, *repeated) == first
