"""How long a reconstruction takes: measured, kept apart in a grid, and shown along local steps."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from leakgauge.catalog import questions
from leakgauge.core.rng import stream
from leakgauge.inversion.metrics.table import METRICS
from leakgauge.inversion.question import QUESTION
from leakgauge.inversion.report.curves import charts
from leakgauge.report.compare import Comparison, FinishedCell, Group, groups
from leakgauge.results.measurements import Estimate, Measurement, read_measurements
from leakgauge.runs.grid import Grid, unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.page import read_comparison, write_page
from leakgauge.runs.runner import run_grid

pytestmark = pytest.mark.usefixtures("few_scales")

SETTINGS = {"data": "d", "seed": 0, "batch_size": 1, "labels": "known", "iterations": 10}


COMPARISON = Comparison("n", "", "", 0, {}, [], [])


def cell(method: str, steps: int, seconds: float, *, simulate: bool, **others) -> FinishedCell:
    one = Measurement(
        "reconstruction", "reconstruction", "d", "y", "records", "none", "static", method,
        "seconds", "accumulated", 0, Estimate(seconds, seconds, seconds, 1), 0.0,
    )  # fmt: skip
    own = {"method": method, "local_steps": steps, "simulate": simulate, **others}
    return FinishedCell({**SETTINGS, **own}, [one])


def shown(*cells: FinishedCell) -> list:
    return charts(COMPARISON, groups({str(at): one for at, one in enumerate(cells)}, METRICS))


def test_the_speed_up_is_the_ratio_of_the_times() -> None:
    """The paper's figures for 8 steps, 33.2 and 6.7 minutes: 33.2 / 6.7 = 4.955."""
    (chart,) = shown(
        cell("agic", 2, 402.0, simulate=False, batch_size=4),
        cell("agic", 8, 402.0, simulate=False),
        cell("inverting-gradients", 2, 804.0, simulate=True, batch_size=4),
        cell("inverting-gradients", 8, 1992.0, simulate=True),
    )
    assert chart.note == (
        "With 8 local steps, agic as one batch is 4.96 times as fast as inverting-gradients by "
        "simulation. With 2 local steps, agic as one batch is 2 times as fast as "
        "inverting-gradients by simulation."
    )
    assert chart.says == chart.note
    assert "inverting-gradients, simulated" in chart.legend
    assert chart.svg is not None


def test_only_cells_that_agree_in_all_else_are_compared() -> None:
    cells = [
        cell("agic", 4, 1.0, simulate=simulate, net=net, iterations=iterations)
        for simulate, net, iterations in (
            (False, "slim", 10), (True, "slim", 20), (True, "resnet20", 10),
        )
    ]  # fmt: skip
    assert shown(*cells) == []
    more = shown(*cells, cell("agic", 4, 3.0, simulate=True, net="slim", iterations=10))
    assert [one.caption for one in more] == ["Time of a reconstruction, s: iterations 10, net slim"]


def test_no_chart_without_a_simulation_or_a_time() -> None:
    assert shown(cell("agic", 4, 1.0, simulate=False)) == []
    untimed = Group({**SETTINGS, "method": "agic"}, "static", ("0",), {})
    assert charts(COMPARISON, [untimed]) == []
    assert QUESTION.charts(COMPARISON, [untimed]) == []


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    x = stream(0, "pictures").integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "p.npz", x=x, y=np.arange(24) % 3)
    content = {
        "name": "times",
        "grids": [{
            "ask": "reconstruction", "data": str(tmp_path / "p.npz"), "label": "y", "images": 4,
            "net": "lenet", "iterations": 2, "labels": "known", "method": "agic",
            "local_steps": 2, "simulate": [False, True],
        }],
    }  # fmt: skip
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    return unfold(read_grid_file(tmp_path / "grid.yaml"), questions())


def test_a_grid_keeps_times_apart_so_that_equal_runs_leave_equal_cells(
    grid: Grid, tmp_path: Path
) -> None:
    kept = []
    for name in ("one", "other"):
        out = tmp_path / name
        assert run_grid(grid, out) == []
        cells = sorted(out.glob("cells/*/*"))
        kept.append({str(one.relative_to(out)): one.read_bytes() for one in cells})
        for folder in out.glob("cells/*"):
            assert {one.metric for one in read_measurements(folder)}.isdisjoint({"seconds"})
        comparison, _ = read_comparison(out, questions())
        for played in comparison.cells.values():
            (time,) = [one for one in played.measurements if one.metric == "seconds"]
            assert time.estimate.value > 0
        page = write_page(out, questions()).read_text("utf-8")
        assert "agic as one batch is" in page
    assert kept[0] == kept[1]


def test_damaged_times_do_no_harm(grid: Grid, tmp_path: Path) -> None:
    assert run_grid(grid, tmp_path / "out") == []
    (tmp_path / "out" / "timings.json").write_text('{"a": 3.5')
    comparison, _ = read_comparison(tmp_path / "out", questions())
    assert len(comparison.cells) == 2
    assert run_grid(grid, tmp_path / "out") == []
