"""The files of AGIC's tables and figures: whole, with the paper's numbers, and playable."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.runs.grid import unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.question import Silent
from leakgauge.runs.sources import source_of
from leakgauge.runs.work import WorkFolder

FOLDER = Path(__file__).parents[2] / "experiments" / "agic"

ROWS = {
    "table1": 14,
    "table2": 36,
    "table3": 12,
    "table4": 36,
    "table5": 8,
    "table6": 9,
    "figure6": 0,
    "figure7": 0,
    "figure8": 2,
    "figure9": 0,
    "figure10": 0,
}
"""Numbers that the paper prints in each table, and states of each figure."""


@pytest.mark.parametrize("name", ROWS)
def test_a_file_has_every_number_of_the_paper(name: str) -> None:
    file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    assert len(file.get("paper", ())) == ROWS[name]
    assert {"small", "cpu", "paper"} <= set(file["sizes"])
    assert file["sizes"]["paper"]["iterations"] == (2000 if name == "table5" else 10000)


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # The sums of the printed columns: PSNR of CIFAR-10 and CIFAR-100.
        ("table1", {"psnr": 104.460 + 108.182}),
        # Rows DLG-Adam, InvG, one-batch, one-batch with layers; CIFAR-10, CIFAR-100, ImageNet.
        (
            "table2",
            {
                "psnr": 58.151 + 65.149 + 39.858,
                "ssim": 1.748 + 2.090 + 0.533,
                "lpips": 0.467 + 0.331 + 3.664,
            },
        ),
        ("table3", {"psnr": 58.909, "ssim": 1.730, "lpips": 0.247}),
        (
            "table4",
            {
                "psnr": 71.920 + 45.638 + 39.716 + 34.355,
                "ssim": 2.443 + 1.431 + 0.674 + 0.588,
                "lpips": 0.069 + 0.305 + 2.112 + 2.242,
            },
        ),
        (
            "table5",
            {
                "matching_greedy_plain": 1.328,
                "matching_greedy_no_labels": 1.420,
                "matching_greedy_no_pooling": 1.660,
                "matching_greedy": 1.686,
            },
        ),
        ("table6", {"psnr": 60.928, "ssim": 1.988, "lpips": 0.064}),
        ("figure8", {"seconds": 60 * (6.7 + 33.2)}),
    ],
)
def test_the_numbers_add_up_to_the_paper_s(name: str, total: dict[str, float]) -> None:
    file = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    found: dict[str, float] = {}
    for row in file["paper"]:
        metric = row.get("metric", "psnr")
        found[metric] = found.get(metric, 0.0) + row["value"]
    assert found == pytest.approx(total)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_cell_of_each_grid_runs(path: Path, data_folder: Path, tmp_path: Path) -> None:
    grid = unfold(read_grid_file(path), questions(), size="small", overrides={"iterations": "2"})
    for number, cells in enumerate(grid.grids):
        cell = cells[0]
        few = cell.records_per_update * (4 if cell.epochs > 1 else 1)
        source = source_of(cell)
        prepared = grid.question.prepare(replace(cell, images=min(cell.images, few)), source)
        answer = grid.question.run(prepared, WorkFolder(tmp_path / str(number)), Silent())
        assert {"psnr", "seconds"} <= {one.metric for one in answer.measurements}
        assert not answer.missing
