"""One audit reads its data once and prepares each question once."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leakgauge.inference.spec import ASKS
from leakgauge.runs import sources
from leakgauge.runs.room import Room
from support.command import run

ROLES = ("--label", "income", "--secret", "sex", "--group", "person")
FAST = ("--rounds", 1, "--trials", 320, "--hidden", 4, "--batch-size", 16, "--workers", 1)
TINY = {
    "guarantee.canary": "random",
    "membership.adversary": "loss",
    "membership.rounds": 1,
    "reconstruction.batch_size": 1,
    "reconstruction.images": 1,
    "reconstruction.iterations": 2,
    "layers.rounds": 1,
    "layers.shadow_batches": 40,
    "layers.held_out": 20,
    "layers.adversary": "forest",
    "timeline.checkpoints": 0,
    "timeline.critic_iterations": 5,
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": rng.choice(["high", "low"], 4000),
            "sex": rng.choice(["f", "m"], 4000),
            "age": rng.integers(18, 80, 4000),
            "hours": rng.normal(size=4000),
            "person": [f"p{row // 80}" for row in range(4000)],
        }
    )
    path = tmp_path_factory.mktemp("people") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    counted: Counter[str] = Counter()
    prepare, read = Room.prepare, sources.open_data

    def counting(room: Room, *given: object) -> object:
        counted[room.name] += 1
        return prepare(room, *given)

    def reading(*given: object, **more: object) -> object:
        counted["data"] += 1
        return read(*given, **more)

    monkeypatch.setattr(Room, "prepare", counting)
    monkeypatch.setattr(sources, "open_data", reading)
    sources.forget()
    return counted


def finished(*words: object) -> None:
    ended = run(*words)
    assert ended.returncode == 0, ended.stderr


def test_one_question(people: Path, calls: Counter[str], tmp_path: Path) -> None:
    words = ("--ask", "property", "--adversary", "energies")
    finished("audit", people, *ROLES, *FAST, *words, "--out", tmp_path / "out")
    assert calls == {"data": 1, "inference": 1}


@pytest.mark.slow
def test_all_words_of_a_question(people: Path, calls: Counter[str], tmp_path: Path) -> None:
    words = [one for ask in ASKS for one in ("--ask", ask)]
    finished("audit", people, *ROLES, *FAST, *words, "--out", tmp_path / "out")
    assert calls == {"data": 1, "inference": 1}


@pytest.mark.slow
def test_all_questions(people: Path, calls: Counter[str], tmp_path: Path) -> None:
    sets = [part for name, one in TINY.items() for part in ("--set", f"{name}={one}")]
    finished("audit", people, *ROLES, *FAST, *sets, "--ask", "all", "--out", tmp_path / "out")
    asked = ("inference", "guarantee", "membership", "reconstruction", "layers", "timeline")
    assert calls == {"data": 1, **dict.fromkeys(asked, 1)}


@pytest.mark.slow
def test_a_grid_of_four_cells(people: Path, calls: Counter[str], tmp_path: Path) -> None:
    file = tmp_path / "grid.yaml"
    file.write_text(
        f"name: four\ngrids:\n  - {{ask: property, data: {people}, label: income, secret: sex, "
        "rounds: 1, trials: 120, adversary: logistic, hidden: [[4]], "
        "batch_size: [4, 8], seed: [0, 1]}\n"
    )
    finished("run", file, "--out", tmp_path / "out")
    # once for the names of the cells, then, without the data of the others, to run each
    assert calls == {"data": 1, "inference": 2 * 4}
