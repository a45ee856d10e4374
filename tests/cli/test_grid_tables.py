"""The table of a grid on the terminal has a line for every setting, whatever its metric."""

import pytest
from rich.console import Console

from leakgauge.catalog import questions
from leakgauge.cli.grid_tables import MOST_ROWS, cells_table
from leakgauge.report.compare import Comparison, FinishedCell
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement

BASE = {"data": "adult", "ask": "property", "lr": 0.1, "seed": 0}


def cell(question: str, metric: str, value: float, **settings: object) -> FinishedCell:
    found = Measurement(
        question=question, game="game", dataset="data", label="label", secret="secret",
        defense="none", knowledge="static", adversary="attack", metric=metric, round=ACCUMULATED,
        seed=0, estimate=Estimate(value, value - 0.02, value + 0.01, 500), chance=0.5,
    )  # fmt: skip
    return FinishedCell({**BASE, **settings}, [found])


def printed(question: str, *cells: FinishedCell) -> list[str]:
    by_key = {str(number): one for number, one in enumerate(cells)}
    comparison = Comparison("g", "", "small", len(cells), by_key, [list(by_key)], ())
    console = Console(width=200)
    with console.capture() as lines:
        console.print(cells_table(comparison, questions()[question]))
    return [" ".join(line.split()) for line in lines.get().splitlines()]


def test_pictures_and_tables_have_a_metric_each() -> None:
    lines = printed(
        "reconstruction",
        cell("reconstruction", "psnr", 25.0, data="cifar10"),
        cell("reconstruction", "columns", 0.8),
    )
    assert len(lines) == 3
    assert "data cifar10 " in lines[1]
    assert " PSNR, dB 25.000 24.980 to 25.010 1" in lines[1]
    assert "data adult " in lines[2]
    assert " Columns right 0.800 0.780 to 0.810 1" in lines[2]


def test_a_metric_that_is_not_a_headline_leaves_the_setting_and_its_seeds() -> None:
    (_, line) = printed("guarantee", cell("guarantee", "auroc", 0.7))
    assert line.startswith("data adult")
    assert line.endswith(" 1")


@pytest.mark.parametrize(("count", "left"), [(MOST_ROWS, 0), (MOST_ROWS + 3, 3)])
def test_a_long_table_ends_with_the_number_of_what_is_left_out(count: int, left: int) -> None:
    cells = [cell("inference", "auroc", 0.7, lr=one) for one in range(count)]
    lines = printed("inference", *cells)
    assert sum(line.startswith("lr ") for line in lines) == MOST_ROWS
    assert lines[MOST_ROWS + 1 :] == [f"and {left} more, in the report"] * bool(left)
