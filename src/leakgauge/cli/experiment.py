"""``leakgauge run FILE.yaml``: a grid of experiments, and the page of what they found."""

import contextlib
import json
import time
from pathlib import Path
from typing import Annotated, Any

import pydantic
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from leakgauge.cli import options
from leakgauge.cli.stopping import REFUSED, stoppable
from leakgauge.core.checks import InputError, require, require_count
from leakgauge.guarantee.metrics import METRICS as GUARANTEE
from leakgauge.inference.metrics import METRICS as INFERENCE
from leakgauge.inversion.metrics.table import METRICS as INVERSION
from leakgauge.report import compare
from leakgauge.report.compare_page import signed, write_comparison
from leakgauge.report.wording import interval, number
from leakgauge.report.wording import plain as plainly
from leakgauge.results.measurements import Estimate
from leakgauge.results.metrics import metric_named
from leakgauge.runs.cell import plain
from leakgauge.runs.cellstore import GRID_FILE, CellStore, read_description
from leakgauge.runs.grid import Grid, read_grid
from leakgauge.runs.runner import Outcome, run_grid

METRICS = {**INFERENCE, **GUARANTEE, **INVERSION}
"""Of all questions, by name."""

_STATED = pydantic.TypeAdapter(list[compare.PaperFigure])

File = Annotated[Path, typer.Argument(help="a YAML file that describes a grid of experiments")]
Size = Annotated[
    str | None, typer.Option(help="one of the file's sizes (default: small, where it has one)")
]
Jobs = Annotated[int, typer.Option(help="cells that are played at once, a process each")]
Out = Annotated[
    Path | None,
    typer.Option(help=f"folder of the grid (default: {options.RUNS}/NAME-SIZE, so repeating it "
                 "goes on)"),
]  # fmt: skip


def run(
    file: File,
    size: Size = None,
    jobs: Jobs = 1,
    out: Out = None,
    json_: options.Json = False,
) -> None:
    """A grid of experiments: finished cells are kept, so the same command goes on after a stop."""
    require_count(jobs, "--jobs")
    grid = read_grid(file, size)
    for device in {cell.device for cell in grid.cells}:
        options.torch_device(device)
    path = out or options.RUNS / "-".join(part for part in (grid.name, grid.size) if part)
    notices = Console(stderr=True)
    began = time.perf_counter()
    with stoppable(notices, f"finished cells are kept in {path}; to go on, repeat the command"):
        refused = _with_progress(grid, path, jobs, notices)
    for outcome in refused:
        notices.print(Text(f"refused: {_named(outcome, grid)}: {outcome.refusal}"), soft_wrap=True)
    comparison = read_comparison(path)
    if comparison.cells:
        report = write_comparison(path, comparison, METRICS)
        if json_:
            print(json.dumps(as_json(comparison, path, report), allow_nan=False))
        else:
            _tell(comparison, report, time.perf_counter() - began)
    if refused:
        raise typer.Exit(REFUSED)


def is_grid(folder: Path) -> bool:
    """Whether the folder is that of a grid."""
    return (folder / GRID_FILE).is_file()


def report_grid(folder: Path) -> Path:
    """Rebuild the page of a grid from its store.

    Raises:
        InputError: no cell is finished.
    """
    comparison = read_comparison(folder)
    require(bool(comparison.cells), f"no cell in {str(folder)!r} is finished; run the grid first")
    return write_comparison(folder, comparison, METRICS)


def read_comparison(folder: Path) -> compare.Comparison:
    """What the folder of a grid holds.

    Raises:
        InputError: it is no grid's, or was damaged.
    """
    told, store = read_description(folder), CellStore(folder)
    found = {key: store.read(key) for key in told["cells"] if store.has(key)}
    try:
        stated = _STATED.validate_python(told["paper"])
    except pydantic.ValidationError as error:
        raise InputError(
            f"{str(folder / GRID_FILE)!r} is damaged (paper); run the grid again"
        ) from error
    return compare.Comparison(
        name=told["name"],
        about=told.get("about", ""),
        size=told["size"],
        asked=told["asked"],
        cells={
            key: compare.Played(is_["settings"], records) for key, (is_, records) in found.items()
        },
        grids=told["grids"],
        paper=stated,
    )


def as_json(comparison: compare.Comparison, out: Path, report: Path) -> dict[str, Any]:
    """Every cell with its accumulated figures, and ours beside the paper's."""
    cells = [
        {
            **played.settings,
            "knowledge": knowledge,
            "records": _accumulated(figures),
        }
        for played in comparison.cells.values()
        for knowledge, figures in compare.by_knowledge([played], METRICS).items()
    ]
    rows = [
        {
            "where": dict(row.stated.where),
            "knowledge": row.stated.knowledge,
            "metric": row.stated.metric,
            "round": row.stated.round,
            "note": row.stated.note,
            "paper": row.stated.value,
            "ours": None if row.ours is None else _ends(row.ours),
            "seeds": 0 if row.ours is None else row.ours.n,
            "difference": row.difference,
        }
        for row in compare.beside_paper(comparison, METRICS)
    ]
    return {
        "name": comparison.name,
        "size": comparison.size,
        "out": str(out),
        "report": str(report),
        "asked": comparison.asked,
        "cells": cells,
        "compare": rows,
    }


def _accumulated(figures: dict[str, Estimate]) -> dict[str, Any]:
    return {metric: _ends(estimate) for metric, estimate in figures.items()}


def _ends(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


class _Left(ProgressColumn):
    """Counts down to the end that the last finished cell promised."""

    def render(self, task: Task) -> Text:
        """The time left in words; nothing where it is not known."""
        until = task.fields["until"]
        left = None if until is None else max(0.0, until - time.monotonic())
        return Text("" if left is None else f"about {duration(left)} left")


def duration(seconds: float) -> str:
    """A time in words, to two units.

    >>> duration(42.4), duration(61), duration(7322)
    ('42 s', '1 min 1 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _with_progress(grid: Grid, out: Path, jobs: int, notices: Console) -> list[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bars = Progress(*columns, TimeElapsedColumn(), _Left(), console=notices)
    bar = bars.add_task(f"{grid.name}: cells", total=None, until=None)
    with contextlib.ExitStack() as shown:

        def progress(done: int, of: int, left: float | None) -> None:
            if not bars.live.is_started:  # not before the folder is ours: a refusal is one line
                shown.enter_context(bars)
            until = None if left is None or done == of else time.monotonic() + left
            bars.update(bar, completed=done, total=of, until=until)

        return run_grid(grid, out, workers=jobs, progress=progress)


def _named(outcome: Outcome, grid: Grid) -> str:
    """The cell by the settings that vary in the grid."""
    settings = plain(outcome.cell)
    names = compare.varying([plain(cell) for cell in grid.cells]) or ["data"]
    return ", ".join(f"{name} {settings[name]}" for name in [*names, "seed"])


def _tell(comparison: compare.Comparison, report: Path, seconds: float) -> None:
    console = Console()
    rows = compare.beside_paper(comparison, METRICS)
    if rows:
        console.print(_table(rows))
    console.print(
        Text(
            f"{len(comparison.cells)} of {comparison.asked} cells; report: {report}  "
            f"({duration(seconds)})"
        ),
        soft_wrap=True,
    )


def _table(rows: list[compare.Row]) -> Table:
    table = Table(title="ours beside the paper's", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("figure", overflow="fold")
    for name in ("metric", "ours", "95 % interval", "seeds", "paper", "difference"):
        table.add_column(name, justify="left" if name == "metric" else "right", no_wrap=True)
    for row in rows:
        ours, difference = row.ours, row.difference
        table.add_row(
            Text(row.stated.title),
            metric_named(row.stated.metric, METRICS).label,
            "not run" if ours is None else number(ours.value),
            "" if ours is None else interval(ours),
            "0" if ours is None else str(ours.n),
            plainly(row.stated.value),
            "" if difference is None else signed(difference),
        )
    return table
