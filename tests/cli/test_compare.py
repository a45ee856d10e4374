"""``leakgauge compare`` and ``lg.compare``: real folders, refusals, and Adult with pruning."""

import hashlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

import leakgauge as lg
from leakgauge.core.rng import stream
from support.command import run

pytestmark = pytest.mark.usefixtures("blank_charts")

ADULT = (
    "adult", "--label", "income", "--secret", "sex", "--ask", "property", "--adversary", "forest",
    "--batch-size", 2, "--trials", 400, "--rounds", 1, "--shadow", 800, "--workers", 1,
)  # fmt: skip
NOISE = "noise:std=10"


def people(n: int = 1500) -> pd.DataFrame:
    """Return a table with a feature that reveals the secret."""
    rng = stream(0, "people")
    sex = rng.integers(2, size=n)
    near = sex + rng.normal(0, 0.2, n)
    return pd.DataFrame(
        {
            "near": near,
            "other": rng.normal(size=n),
            "sex": sex,
            "rich": rng.integers(2, size=n),
        }
    )


def audit(out: Path, **more: object) -> lg.Result:
    chosen = {"rounds": 1, "trials": 240, "shadow": 300, "hidden": (8,), "batch_size": 4, **more}
    data = lg.load(people(), label="rich", secret="sex")
    return lg.audit(data, "property", adversaries=["energies"], out=out, **chosen)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return audits of one table: the same twice, another seed, and a strong defense."""
    base = tmp_path_factory.mktemp("audits")
    audit(base / "one")
    audit(base / "two")
    audit(base / "seed", seed=1)
    audit(base / "defended", defenses=[NOISE])
    return {path.name: path for path in base.iterdir()}


def printed(*words: object) -> dict:
    ended = run("compare", *words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def main(found: dict, metric: str = "auroc") -> list[dict]:
    return [
        one
        for one in found["differences"]
        if one["main"] and not one["control"] and one["metric"] == metric
    ]


def holds_0(one: dict) -> bool:
    return one["difference"]["low"] <= 0 <= one["difference"]["high"]


def test_equal_audits_differ_by_0(folders: dict[str, Path]) -> None:
    found = printed(folders["one"], folders["two"])
    assert {one["difference"]["value"] for one in found["differences"]} == {0.0}
    assert all(map(holds_0, found["differences"]))
    assert {one["verdict"] for one in found["differences"]} == {"Same run"}


@pytest.mark.calibration
def test_another_seed_alone_makes_no_difference(folders: dict[str, Path]) -> None:
    (one,) = main(printed(folders["one"], folders["seed"]))
    assert one["before"]["value"] > 0.8, "the secret is planted"
    assert holds_0(one)
    assert one["verdict"] == "No difference seen"
    assert one["smallest_detectable"] > 0


@pytest.mark.calibration
def stronger(folder: Path) -> str:
    """Return the knowledge of the adversary with the larger AUROC under the defense."""
    lines = (folder / "measurements.jsonl").read_text(encoding="utf-8").splitlines()
    found = [
        (one["estimate"]["value"], one["knowledge"])
        for one in map(json.loads, lines)
        if (one["metric"], one["round"], one["defense"]) == ("auroc", "headline", NOISE)
    ]
    assert len(found) == 2
    return max(found)[1]


def test_a_defense_that_works_makes_one(folders: dict[str, Path]) -> None:
    found = printed(folders["one"], folders["defended"])
    (one,) = main(found)
    assert one["after"]["knowledge"] == stronger(folders["defended"])
    assert one["difference"]["high"] < 0
    assert one["verdict"] == "Leaks less"
    assert found["warnings"] == [], "without the defense both audits have the same figures"
    (back,) = main(printed(folders["defended"], folders["one"], "--against", NOISE))
    assert back["verdict"] == "Leaks more"
    assert back["difference"]["value"] == -one["difference"]["value"]


def test_the_terminal_names_what_differs_and_writes_a_page(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "differences.html"
    ended = run("compare", folders["one"], folders["defended"], "--out", page)
    assert ended.returncode == 0
    for words in ("Leaks less", f"no defense → {NOISE}", "Accuracy", "MOVER", str(page)):
        assert words in ended.stdout
    assert (
        page.read_text(encoding="utf-8")
        == lg.compare(folders["one"], folders["defended"]).to_html()
    )
    more = run("compare", folders["one"], folders["defended"], "--verbose").stdout
    assert "Information told" in more
    assert "Information told" not in ended.stdout


def test_python_takes_results_and_folders(folders: dict[str, Path]) -> None:
    found = lg.compare(audit(folders["one"]), str(folders["defended"]), defenses=[NOISE])
    assert found.leakage[0].verdict == "Leaks less"
    assert (found.to_pandas()["defense"] == NOISE).any()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("one", "none-such"), "no such folder"),
        (("one", "empty"), "no run.yaml"),
        (("one", "grid"), "holds a grid"),
        (("one", "begun"), "is not finished"),
        (("one", "two", "--defense", "sing"), "has no defense 'sing'"),
        (("one", "two", "--out", "no/such/file.html"), "--out is"),
        (("one",), "Missing argument"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    folders: dict[str, Path], tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    described = (folders["one"] / "run.yaml").read_text(encoding="utf-8").split("\n", 1)[1]
    begun = described.replace("cells:\n- inference\n", "cells:\n- inference\n- layers\n")
    for name, text in (("grid", described.replace("command: audit", "command: run")),
                       ("begun", begun), ("empty", "")):  # fmt: skip
        shutil.copytree(folders["one"], tmp_path / name)
        (tmp_path / name / "run.yaml").unlink()
        if text:
            (tmp_path / name / "run.yaml").write_text(sealed(text), encoding="utf-8")
    given = [folders.get(word, tmp_path / word if n < 2 else word) for n, word in enumerate(words)]
    ended = run("compare", *given)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert says in ended.stderr


def sealed(text: str) -> str:
    return f"# sha256 {hashlib.sha256(text.encode()).hexdigest()}\n{text}"


@pytest.mark.slow
def test_adult_without_and_with_pruning(data_folder: Path, tmp_path: Path) -> None:
    """Pruning lowers the leak to a forest on batches of two; another seed does not."""
    for name, more in (("a", ()), ("b", ("--defense", "prune:rate=0.999"))):
        assert run("audit", *ADULT, *more, "--out", tmp_path / name).returncode == 0
    (same,) = main(printed(tmp_path / "a", tmp_path / "a"))
    assert holds_0(same)
    (one,) = main(printed(tmp_path / "a", tmp_path / "b"))
    assert not holds_0(one)
    assert one["verdict"] == "Leaks less"
