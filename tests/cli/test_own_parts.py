"""A user's own defense and adversary, named MODULE:NAME, in every command that takes one."""

import json
import shlex
from pathlib import Path

import pytest

from support import command
from support.command import figures
from support.tables import frame

pytestmark = pytest.mark.usefixtures("blank_charts")

MODULE = '''
from dataclasses import dataclass

import numpy as np

from leakgauge.defenses import Defense, Transform
from leakgauge.inference import Forest


@dataclass(frozen=True)
class Zeroed(Transform):
    """Sends a share of the gradient; 0 sends nothing."""

    share: float

    def __call__(self, grads, rngs):
        return {name: self.share * leaf for name, leaf in grads.items()}


def build(share: float = 0.0):
    return Defense("zeroed", update=Zeroed(share))


@dataclass(frozen=True)
class Small(Forest):
    """A forest of few trees."""

    trees: int = 5
'''
SMALL = ("--rounds", 1, "--trials", 120, "--batch-size", 4, "--shadow", 120, "--workers", 1)
OWN = ("--adversary", "own_parts:Small:trees=7", "--defense", "own_parts:build:share=0.5",
       "--defense", "own_parts:build")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("own")
    (made / "own_parts.py").write_text(MODULE)
    frame().to_csv(made / "people.csv", index=False)
    return made


@pytest.fixture(scope="module")
def answer(folder: Path) -> dict:
    words = ("people.csv", "--label", "income", "--secret", "sex", *SMALL, *OWN)
    done = command.run("audit", *words, "--out", "own", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_audit_runs_both(folder: Path, answer: dict) -> None:
    cells = answer["inference"]["cells"]
    assert {cell["adversary"] for cell in cells} == {"own_parts:Small:trees=7"}
    by_defense = {(cell["defense"], cell["knowledge"]): cell for cell in cells}
    scaled, zeroed = "own_parts:build:share=0.5", "own_parts:build"
    assert set(by_defense) == {
        ("none", "static"),
        *((name, knowledge) for name in (scaled, zeroed) for knowledge in ("static", "adaptive")),
    }
    values = {key: cell["accumulated"]["auroc"]["value"] for key, cell in by_defense.items()}
    assert values[zeroed, "adaptive"] == pytest.approx(0.5, abs=1e-9)  # nothing was sent
    assert values[scaled, "adaptive"] == pytest.approx(values["none", "static"], abs=0.1)
    page = (folder / "own" / "report.html").read_text(encoding="utf-8")
    assert zeroed in page


def test_the_repeat_command_repeats_it(folder: Path, answer: dict) -> None:
    words = shlex.split(answer["repeat"])[1:]
    done = command.run(*words, "--workers", 1, "--out", "again", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert figures(folder / "again") == figures(folder / "own")


def test_report_rebuilds_the_page(folder: Path, answer: dict) -> None:
    page = (folder / "own" / "report.html").read_bytes()
    (folder / "own" / "report.html").unlink()
    assert command.run("report", "own", cwd=folder).returncode == 0
    assert (folder / "own" / "report.html").read_bytes() == page


def test_a_grid_and_set_take_them(folder: Path) -> None:
    (folder / "grid.yaml").write_text(
        "name: own\ngrids:\n"
        "  - {data: people.csv, label: income, secret: sex, rounds: 1, trials: 120, shadow: 120,\n"
        "     batch_size: 4, adversary: 'own_parts:Small'}\n"
    )
    words = ("--set", "defense=none,own_parts:build", "--out", "grid", "--json")
    done = command.run("run", "grid.yaml", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [(cell["defense"], cell["knowledge"]) for cell in cells] == [
        ("none", "static"), ("own_parts:build", "static"), ("own_parts:build", "adaptive"),
    ]  # fmt: skip
    table = ("people.csv", "--label", "income", "--secret", "sex", *SMALL)
    sets = ("--set", "inference.defense=own_parts:build", "--set", "inference.adversary=energies")
    done = command.run("audit", *table, *sets, "--out", "set", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["inference"]["cells"]
    assert {cell["defense"] for cell in cells} == {"none", "own_parts:build"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--defense", "own_parts:bild"), "did you mean 'build'?"),
        (("--defense", "own_part:build"), "cannot import 'own_part'"),
        (("--defense", "own_parts:build:shar=1"), "did you mean 'share'?"),
        (("--adversary", "own_parts:Smal"), "did you mean 'Small'?"),
        (("--adversary", "own_parts:Small:tree=3"), "did you mean 'trees'?"),
    ],
)
def test_refusals_are_one_line(folder: Path, words: tuple[str, ...], says: str) -> None:
    done = command.run("audit", "people.csv", "--label", "income", "--secret", "sex", *words,
                       cwd=folder)  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.strip().splitlines()
    assert says in line


def test_a_folder_of_other_code_is_refused(folder: Path, tmp_path: Path) -> None:
    """Figures of an earlier version of a defense are not reused."""
    (tmp_path / "edited_parts.py").write_text(MODULE)
    words = (folder / "people.csv", "--label", "income", "--secret", "sex", *SMALL)
    words = (*words, "--adversary", "energies", "--defense", "edited_parts:build", "--out", "out")
    assert command.run("audit", *words, cwd=tmp_path).returncode == 0
    (tmp_path / "edited_parts.py").write_text(MODULE + "\n# edited\n")
    done = command.run("audit", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "holds another run (the content of edited_parts:build changed)" in done.stderr


@pytest.mark.parametrize("option", ["--set", "--only"])
def test_a_key_that_is_named_twice_is_refused(folder: Path, option: str) -> None:
    (folder / "seeds.yaml").write_text("name: seeds\ngrids: [{data: people.csv, seed: [0, 1]}]\n")
    done = command.run("run", "seeds.yaml", option, "seed=0", option, "seed=1", cwd=folder)
    assert done.returncode == 2
    assert f"{option} names 'seed' twice; write its values once" in done.stderr
    assert len(done.stderr.splitlines()) == 1
