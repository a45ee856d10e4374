"""A defense of some layers through the command line: one audit, and an unknown layer."""

import json
from pathlib import Path

import pytest

from support import command
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")

PRUNED = "prune:rate=0.99,layers=first"
SMALL = ("--rounds", 1, "--trials", 40, "--batch-size", 4, "--shadow", 60, "--workers", 1)
TABLE = ("people.csv", "--label", "income")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("layers")
    frame(400).to_csv(made / "people.csv", index=False)
    return made


def test_an_audit_runs_it(folder: Path) -> None:
    words = (*TABLE, "--secret", "sex", *SMALL, "--adversary", "forest", "--defense", PRUNED)
    done = command.run("audit", *words, "--out", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    cells = {(one["defense"], one["knowledge"]) for one in answer["inference"]["cells"]}
    assert cells == {("none", "static"), (PRUNED, "static"), (PRUNED, "adaptive")}
    assert PRUNED in answer["repeat"]
    assert PRUNED in (folder / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("ask", ["property", "membership", "reconstruction"])
def test_an_unknown_layer_ends_every_question_with_one_line(folder: Path, ask: str) -> None:
    secret = ("--secret", "sex", *SMALL[4:]) if ask == "property" else ()
    words = (*TABLE, "--ask", ask, *secret, "--defense", "prune:rate=0.9,layers=frist")
    done = command.run("audit", *words, "--out", f"unknown-{ask}", cwd=folder)
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "the model has no layer 'frist'; did you mean 'first'?" in last


def test_layers_of_dpsgd_are_refused(folder: Path) -> None:
    words = (*TABLE, "--secret", "sex", "--defense", "dpsgd:clip=2,layers=first")
    done = command.run("audit", *words, "--out", "refused", cwd=folder)
    assert done.returncode == 2
    assert "dpsgd takes no layers, as its guarantee needs" in done.stderr
