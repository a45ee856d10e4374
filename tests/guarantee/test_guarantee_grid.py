"""Grids of guarantees, and the pages that show them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.guarantee.question import QUESTION
from leakgauge.runs.grid import Grid, unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.page import read_comparison, write_page
from leakgauge.runs.runner import run_grid

QUESTIONS = {QUESTION.name: QUESTION}
AUDIT = {
    "ask": "guarantee", "attribute": "sex", "label": "income", "clip": 2, "noise": [0.1, 30.0],
    "canary": ["random", "crafted-valid"], "trials": 200, "hidden": [8], "seed": [0, 1],
}  # fmt: skip
STATED = {
    "where": {"canary": "random", "noise": 30.0}, "knowledge": "adaptive",
    "metric": "per_attribute_ratio", "value": 1.2,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = stream(0, "users"), 80
    frame = pd.DataFrame(
        {
            "height": rng.normal(size=n),
            "town": rng.choice(["a", "b"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
        }
    )
    path = tmp_path_factory.mktemp("grid")
    frame.to_csv(path / "users.csv", index=False)
    return path


def written(folder: Path, *grids: dict, paper: tuple[dict, ...] = ()) -> Path:
    path = folder / "grid.yaml"
    grids = tuple({"data": str(folder / "users.csv"), **one} for one in grids)
    path.write_text(yaml.safe_dump({"name": "g", "grids": list(grids), "paper": list(paper)}))
    return path


def grid_of(path: Path) -> Grid:
    return unfold(read_grid_file(path), QUESTIONS)


def refusal(folder: Path, *grids: dict, paper: tuple[dict, ...] = ()) -> str:
    with pytest.raises(InputError) as refused:
        grid_of(written(folder, *grids, paper=paper))
    return str(refused.value)


def test_a_grid_of_guarantees_is_played_and_shown(folder: Path, tmp_path: Path) -> None:
    grid = grid_of(written(folder, AUDIT, paper=(STATED,)))
    assert len(grid.cells) == 8
    assert run_grid(grid, tmp_path, workers=1) == []
    shows_what_was_planted(tmp_path)


def shows_what_was_planted(out: Path) -> None:
    """Almost no noise, or much."""
    comparison, _ = read_comparison(out, QUESTIONS)
    for cell in comparison.cells.values():
        by_metric = {one.metric: one for one in cell.measurements}
        quiet = cell.settings["noise"] == 30.0
        assert (by_metric["epsilon"].estimate.low > 3) != quiet
        assert by_metric["epsilon"].theory["mechanism_classic"] == pytest.approx(
            2 / cell.settings["noise"] * np.sqrt(2 * np.log(1.25e5))
        )
    page = write_page(out, QUESTIONS).read_text()
    assert page.count("<figcaption>Epsilon along noise") == 2
    assert "At noise 0.1 no trial went wrong" in page
    assert page.count("lower bound to best guess") == 1  # the legend of all charts


def test_a_grid_compares_filters_with_and_without_a_promise(folder: Path, tmp_path: Path) -> None:
    served = {"mechanism": ["fixed-clipping:norm=1"], "server_noise": [2.0]}
    filters = {"mechanism": ["svt", "sign", "local-dp:clip=1,sensitivity=3,epsilon=2,delta=1e-05"]}
    shared = {name: AUDIT[name] for name in ("ask", "attribute", "label", "trials", "hidden")}
    shared["canary"] = "random"
    grid = grid_of(written(folder, {**shared, **served}, {**shared, **filters}))
    assert run_grid(grid, tmp_path, workers=1) == []
    page = write_page(tmp_path, QUESTIONS).read_text()
    for words in ("No differential privacy", "The claim does not hold", "Nothing against"):
        assert words in page


REFUSED = [
    (({**AUDIT, "rounds": -1},), "--rounds is -1"),
    (({**AUDIT, "canary": "worst"},), "--canary is 'worst'"),
    (({**AUDIT, "canary": "random", "domain": "box"},), "--domain needs --canary crafted"),
    (({**AUDIT, "noise": [1, 0]},), "epsilon is infinite"),
    (({**AUDIT, "trials": 4},), "4 trials cannot show any epsilon"),
    (({**AUDIT, "mechanism": "opacs"},), "did you mean 'opacus'?"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED)
def test_what_cannot_be_asked_is_refused(folder: Path, more: tuple[dict, ...], says: str) -> None:
    assert says in refusal(folder, *([AUDIT] if "attribute" not in more[0] else []), *more)


def test_a_cell_without_an_attribute_is_refused(folder: Path, tmp_path: Path) -> None:
    """Only the data say whether a secret is known for them."""
    path = written(folder, {"ask": "guarantee", "label": "income", "trials": 12, "noise": 1})
    (outcome,) = run_grid(grid_of(path), tmp_path / "out")
    assert "no attribute of 'users.csv' is named" in str(outcome.refusal)


def test_scores_are_shown_where_neither_noise_nor_clip_varies(folder: Path, tmp_path: Path) -> None:
    audit = {**AUDIT, "noise": 1.0, "trials": 20, "seed": 0}
    assert run_grid(grid_of(written(folder, audit)), tmp_path / "out") == []
    page = write_page(tmp_path / "out", QUESTIONS).read_text()
    assert page.count("<figcaption>Scores under both values: canary") == 2
    assert page.count("first value") == 1


def test_a_stated_figure_without_rounds(folder: Path) -> None:
    assert "write knowledge: adaptive" in refusal(
        folder, {**AUDIT, "noise": 30.0, "canary": "random"}, paper=({**STATED, "round": 1},)
    )
