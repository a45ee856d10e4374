"""The files of the paper's table, the script that tests its claims, and the heat maps."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from support.command import run

FOLDER = Path(__file__).parents[2] / "experiments" / "tokens"

CHECKPOINTS = {
    "lenet": [0, 1, 5, 8, 60, 100, 200],
    "alexnet": [0, 5, 15, 30, 50, 120, 200],
    "cnn": [0, 1, 5, 10, 20, 50, 100],
    "mlp": [0, 1, 5, 10, 20, 50, 100],
}
TINY = (
    "checkpoints=0,1", "token=autoencoder", "iterations=2", "critic_iterations=2", "records=800",
    "width=8", "images=1", "attack_iterations=2", "estimator=infonce",
)  # fmt: skip


@pytest.fixture(scope="module")
def claims() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("claims", FOLDER / "claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["claims"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["claims"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_files_have_the_paper_s_checkpoints_and_every_gap(name: str) -> None:
    file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    (grid,) = file["grids"]
    assert grid["checkpoints"] == CHECKPOINTS[name]
    for token in ("autoencoder", "transformer"):
        metric = f"critic_gap_in_sample: {token}, paper"
        steps = [row["round"] for row in file["paper"] if row["metric"] == metric]
        assert steps == CHECKPOINTS[name]


def test_the_paper_s_own_table_contradicts_that_the_gap_tracks_the_attack(
    claims: ModuleType,
) -> None:
    found = {
        one.net: [round(claims.rank(curve, one.psnr), 2) for curve in one.by_token.values()]
        for one in claims.papers()
    }
    assert found["lenet-relu"] == [-0.68, -0.68]
    assert found["alexnet-3fc"] == [0.07, 0.11]
    assert found["cnn-2"][0] == -0.86
    text = "\n".join(claims.lines([]))
    assert text.count("does not hold") == 4, "of the paper's own figures, that claim alone"


def test_claims_are_judged_on_curves_that_are_known(claims: ModuleType) -> None:
    rising = {0: 0.0, 1: 1.0, 2: 3.0, 3: 2.0}
    falling = {0: 3.0, 1: 2.0, 2: 1.0, 3: 0.5}
    quality = {0: 30.0, 1: 20.0, 2: 15.0, 3: 10.0}
    for curve, wanted in (
        (rising, (True, True, True, False)),
        (falling, (False, False, True, True)),
    ):
        both = {"autoencoder": curve, "transformer": curve}
        one = claims.Course("ours", "net", 20, "gap", both, quality)
        judged = [judge(one)[0] for judge in claims.CLAIMS.values()]
        assert tuple(judged[:4]) == wanted
        assert judged[4]
    courses = [
        claims.Course("ours", "net", batch, "gap", {"autoencoder": {0: 0.0, at: 1.0, 9: 0.5}}, {})
        for batch, at in ((10, 1), (20, 5))
    ]
    (line,) = claims.smaller_batch_earlier(courses)
    assert " holds" in line


@pytest.mark.slow
def test_a_tiny_cell_of_the_table_plays_and_is_judged(
    data_folder: Path, claims: ModuleType, tmp_path: Path
) -> None:
    sets = [part for one in TINY for part in ("--set", one)]
    ended = run(
        "run", str(FOLDER / "lenet.yaml"), "--size", "small", *sets, "--jobs", "1",
        "--out", "out", cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    text = "\n".join(claims.lines([tmp_path / "out"]))
    assert "lenet-relu   ours   information, infonce" in text


@pytest.mark.slow
def test_the_page_of_a_grid_over_batch_sizes_has_heat_maps(tmp_path: Path) -> None:
    grid = {
        "name": "sizes",
        "grids": [{
            "ask": "timeline", "data": "randhie", "batch_size": [2, 4], "checkpoints": [0, 1],
            "iterations": 5, "critic_iterations": 5, "width": 16, "records": 400, "hidden": [8],
        }],
    }  # fmt: skip
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid), encoding="utf-8")
    ended = run("run", "grid.yaml", "--jobs", "1", "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert html.count("The palest cell has") == 2
    assert "Held-out bound, autoencoder, infonce, nats" in html
