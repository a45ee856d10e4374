"""A toy method, by entry point and as ``MODULE:NAME``, is at once usable in every command."""

import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.core.registry import registered
from leakgauge.inversion import methods
from leakgauge.inversion.methods import METHODS, method_of
from leakgauge.training import Protocol
from support.command import run
from support.kept import keep_federation, normal
from support.packages import registered as installed
from support.sources import people

pytestmark = pytest.mark.usefixtures("few_scales")

OWN = "support.toy_method:Middle"
SOURCE = Path(methods.__file__).parents[1]


@pytest.fixture(params=["entry point", "MODULE:NAME"])
def toy(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Return how a user names the toy method."""
    if request.param == "MODULE:NAME":
        yield OWN
        return
    site = installed(tmp_path / "site", "leakgauge.inversion_methods", {"middle": OWN})
    monkeypatch.syspath_prepend(site["PYTHONPATH"].split(os.pathsep)[0])
    registered.cache_clear()
    yield "middle"
    registered.cache_clear()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "people.csv"
    people().to_csv(path, index=False)
    return path


def answer(folder: Path, *words: object) -> dict:
    ended = run(*words, "--json", "--out", "out", cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def adversaries(folder: Path) -> set[str]:
    lines = [
        line
        for path in (folder / "out").rglob("measurements.jsonl")
        for line in path.read_text().splitlines()
    ]
    return {json.loads(line)["adversary"] for line in lines}


def test_invert_runs_it_beside_others(toy: str, table: Path, tmp_path: Path) -> None:
    named = f"{toy}:place=0.25"
    words = ("--label", "income", "--images", 2, "--method", named, "--method", "exact")
    answer(tmp_path, "invert", table, *words, "--defense", "sign")
    assert adversaries(tmp_path) == {named, "exact"}
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert named in page


def test_an_audit_and_its_card_name_it(toy: str, table: Path, tmp_path: Path) -> None:
    words = ("--label", "income", "--ask", "reconstruction", "--set", "reconstruction.images=2")
    answer(tmp_path, "audit", table, *words, "--adversary", toy)
    assert adversaries(tmp_path) == {toy}
    card = "\n".join(path.read_text("utf-8") for path in (tmp_path / "out").glob("*card*"))
    assert not card or "guesses the middle of each value" in card


def test_a_grid_runs_it_with_its_settings(toy: str, table: Path, tmp_path: Path) -> None:
    named = f"{toy}:place=0.75"
    (tmp_path / "grid.yaml").write_text(
        f"name: g\ngrids:\n  - {{ask: reconstruction, data: {table}, label: income, images: 2, "
        f"method: ['{named}', exact]}}\n"
    )
    found = answer(tmp_path, "run", "grid.yaml")
    assert {one["method"] for one in found["cells"]} == {named, "exact"}
    assert named in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_kept_updates_are_attacked_with_it(toy: str, tmp_path: Path) -> None:
    x, y = normal(2, 12, name="x"), torch.arange(40) % 4
    name = keep_federation(
        tmp_path,
        "nn.Linear(12, 16), nn.Sigmoid(), nn.Linear(16, 4)",
        [(x[:1], y[:1]), (x[1:], y[1:2])],
        (normal(40, 12, name="public"), y),
        Protocol(rounds=1, lr=0.1, batch_size=1),
        {},
        config={"lr": 0.1, "local-epochs": 1, "batch-size": 1},
    )
    words = ("--task", f"{name}:task", "--ask", "reconstruction", "--method", toy)
    found = answer(tmp_path, "federation", "kept", *words)["reconstruction"]
    assert len(found["updates"]) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--epochs", 2, "--images", 4), "reads updates one by one"),
        (("--ladder",), "one search"),
        (("--method", "exact:a=1"), "takes no settings"),
        (("--method", "support.toy_method:Traits"), "expected a leakgauge.inversion.Method"),
        (("--method", "support.toy_method:Gone"), "no function"),
    ],
)
def test_what_it_cannot_do_is_refused(words: tuple, reason: str, table: Path) -> None:
    ended = run("invert", table, "--label", "income", "--method", OWN, *words, cwd=table.parent)
    assert ended.returncode == 2
    assert reason in ended.stderr


def test_a_method_for_tables_is_refused_for_images_and_updates() -> None:
    with pytest.raises(InputError, match="--method exact is for x; choose one of dlg"):
        methods.refuse_tables_only("exact", "x; choose")


@pytest.mark.parametrize("name", METHODS)
def test_each_built_in_method_says_what_it_does(name: str) -> None:
    traits = method_of(name).traits
    assert re.fullmatch(r"[a-z].*\.", traits.does)
    assert partial(method_of, name)().described


def test_only_its_own_file_and_the_catalogue_name_exact() -> None:
    own = {"inversion/methods.py", "inversion/exact.py"}
    pattern = re.compile(r"\bEXACT\b|method [=!]= ?\"exact\"")
    named = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if pattern.search(path.read_text("utf-8"))
    }
    assert named == own
