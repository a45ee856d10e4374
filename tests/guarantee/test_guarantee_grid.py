"""Grids of guarantees, and the pages that show them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from leakgauge.cli.experiment import read_comparison
from playwright.sync_api import Browser

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.guarantee.metrics import METRICS
from leakgauge.guarantee.report.page import write_guarantee
from leakgauge.report.compare_page import write_comparison
from leakgauge.results.measurements import ACCUMULATED, Estimate, Histogram, Measurement, Run
from leakgauge.runs.grid import read_grid
from leakgauge.runs.runner import run_grid
from support.made_runs import HOSTILE
from support.pages import drawn

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
    rng, n = stream(0, "people"), 80
    frame = pd.DataFrame(
        {
            "height": rng.normal(size=n),
            "town": rng.choice(["a", "b"], size=n),
            "sex": rng.choice(["f", "m"], size=n),
            "income": rng.choice(["high", "low"], size=n),
        }
    )
    path = tmp_path_factory.mktemp("grid")
    frame.to_csv(path / "people.csv", index=False)
    return path


def written(folder: Path, *grids: dict, paper: tuple[dict, ...] = ()) -> Path:
    path = folder / "grid.yaml"
    grids = tuple({"data": str(folder / "people.csv"), **one} for one in grids)
    path.write_text(yaml.safe_dump({"name": "g", "grids": list(grids), "paper": list(paper)}))
    return path


def refusal(folder: Path, *grids: dict, paper: tuple[dict, ...] = ()) -> str:
    with pytest.raises(InputError) as refused:
        read_grid(written(folder, *grids, paper=paper))
    return str(refused.value)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.process
def test_a_grid_of_guarantees_is_played_and_shown(
    folder: Path, tmp_path: Path, workers: int
) -> None:
    grid = read_grid(written(folder, AUDIT, paper=(STATED,)))
    assert len(grid.cells) == 8
    assert run_grid(grid, tmp_path / "out", workers=workers) == []
    found = read_comparison(tmp_path / "out")
    for cell in found.cells.values():
        by_metric = {record.metric: record for record in cell.records}
        quiet = cell.settings["noise"] == 30.0
        assert (by_metric["epsilon"].estimate.low > 3) != quiet  # planted: almost no noise, or much
        assert by_metric["epsilon"].theory["mechanism_classic"] == pytest.approx(
            2 / cell.settings["noise"] * np.sqrt(2 * np.log(1.25e5))
        )
    page = write_comparison(tmp_path / "out", found, METRICS).read_text()
    assert page.count("<figcaption>Epsilon along noise") == 2
    assert "At noise 0.1 no trial went wrong" in page
    again = tmp_path / "again"
    assert run_grid(grid, again, workers=3 - workers) == []
    records = [sorted(one.glob("cells/*/measurements.jsonl")) for one in (tmp_path / "out", again)]
    texts = [[path.read_bytes() for path in paths] for paths in records]
    assert texts[0] == texts[1]


REFUSED = [
    (({"ask": "property"},), "(guarantee, property); write a file for each"),
    (({**AUDIT, "rounds": 3},), "unknown key 'rounds'"),
    (({**AUDIT, "canary": "crafted"},), "--canary is 'crafted'"),
    (({**AUDIT, "noise": [1, 0]},), "epsilon is infinite"),
    (({**AUDIT, "trials": 4},), "4 trials cannot show any epsilon"),
    (({**AUDIT, "mechanism": "opacs"},), "did you mean 'opacus'?"),
]


@pytest.mark.parametrize(("more", "says"), REFUSED)
def test_what_cannot_be_asked_is_refused(folder: Path, more: tuple[dict, ...], says: str) -> None:
    assert says in refusal(folder, *([AUDIT] if "attribute" not in more[0] else []), *more)


def test_an_attribute_must_be_named(folder: Path) -> None:
    assert "attribute is missing" in refusal(folder, {"ask": "guarantee", "clip": 2, "noise": 1})


def test_a_stated_figure_without_rounds(folder: Path) -> None:
    assert "write knowledge: adaptive" in refusal(
        folder, {**AUDIT, "noise": 30.0, "canary": "random"}, paper=({**STATED, "round": 1},)
    )


def one(metric: str, value: float, **more: object) -> Measurement:
    return Measurement(
        question="guarantee", game=HOSTILE, dataset=HOSTILE, label=HOSTILE, secret=HOSTILE,
        defense="dpsgd:clip=2,noise=0.1", knowledge="adaptive", adversary="norm", metric=metric,
        round=ACCUMULATED, seed=0, estimate=Estimate(value, value / 2, 2 * value, 5000),
        chance=0.0, details={"first": HOSTILE, "second": "n" * 80}, **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_browser_shows_one_guarantee(
    browser: Browser,
    tmp_path: Path,
    scheme: str,
    width: int,
) -> None:
    names = ("pair_exact", "mechanism_exact", "mechanism_classic", "per_attribute_classic")
    theory = dict.fromkeys(names, 3.0) | {
        "largest_showable": 7.8, "largest_showable_low": 6.5, "largest_showable_gaussian_low": 40.0,
    }  # fmt: skip
    histogram = Histogram((0.0, 1.0, 2.0), (3, 1), (1, 3))
    records = [
        one("epsilon", 2.0, theory=theory, histogram=histogram),
        one("epsilon_gaussian", 9.0),
    ]
    settings = {
        "attribute": HOSTILE, "canary": "crafted-free", "mechanism": HOSTILE, "trials": 5000,
        "delta": 1e-5, "clip": 2.0, "noise": 0.1,
    }  # fmt: skip
    run = Run("guarantee", settings, {"name": HOSTILE, "records": 10}, [HOSTILE])
    path = write_guarantee(tmp_path, run, records)
    text = path.read_text()
    assert HOSTILE not in text
    assert "The promise does not hold" in text  # 4.5 at least, where 3 is promised
    assert drawn(browser, path, scheme, width) == 1
    assert not re.search(r"\bnan\b|\binf\b", json.dumps(text))
