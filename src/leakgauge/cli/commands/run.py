"""``leakgauge run FILE.yaml``: a grid of experiments, and the page of its results."""

import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
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
from rich.text import Text

from leakgauge.catalog import questions
from leakgauge.cli import options
from leakgauge.cli.gating import (
    GateOptions,
    exit_with,
    gate_as_json,
    gated,
    print_gate,
    wide_console,
)
from leakgauge.cli.grid_tables import cells_table, paper_table
from leakgauge.cli.stopping import stoppable
from leakgauge.core.checks import InputError, require, require_count
from leakgauge.core.memory import bounded
from leakgauge.runs.executors.executor import EXECUTORS, PROCESSES, make_executor

if TYPE_CHECKING:
    from leakgauge.report.compare import Comparison
    from leakgauge.results.measurements import Estimate
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.cell import CellOutcome
    from leakgauge.runs.executors.executor import Executor
    from leakgauge.runs.grid import Grid
    from leakgauge.runs.question import Question

File = Annotated[Path, typer.Argument(help="a YAML file that describes a grid of experiments")]
Size = Annotated[
    str | None, typer.Option(help="one of the file's sizes (default: small, where it has one)")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="cells that run at once, a process each (default: 1; with --address the "
        "cluster decides)"
    ),
]
Where = Annotated[
    str,
    typer.Option(
        "--executor",
        help="where the cells run: processes, dask or ray; a cluster's workers need the same "
        "versions, data and MODULE:NAME code",
        autocompletion=lambda: list(EXECUTORS),
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="cluster of --executor that runs, for example tcp://host:8786 (Dask) or "
        "ray://host:10001 (default: one with --jobs processes on this machine)"
    ),
]
KeyValues = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE,...: values that replace the file's; repeatable"),
]
OnlyValues = Annotated[
    list[str] | None,
    typer.Option(
        "--only", help="KEY=VALUE,...: run only the cells that have one of the values; repeatable"
    ),
]
GridFolder = Annotated[
    Path | None,
    typer.Option(
        help=f"folder of the grid (default: {options.RUNS}/NAME-SIZE, so a repeated command "
        "resumes)"
    ),
]


EXAMPLES = (
    "leakgauge run experiments/demo.yaml",
    "leakgauge run experiments/demo.yaml --size small --set seed=0,1 --jobs 2",
    "leakgauge run experiments/agic/table4.yaml --size cpu --only method=agic --only batch_size=1",
    "leakgauge run experiments/demo.yaml --executor dask --address tcp://host:8786",
)


@gated
def run(
    file: File,
    gate_options: GateOptions,
    size: Size = None,
    jobs: Jobs = None,
    set_: KeyValues = None,
    only: OnlyValues = None,
    executor: Where = PROCESSES,
    address: Address = None,
    max_memory: options.MaxMemory = None,
    out: GridFolder = None,
    json_: options.Json = False,
) -> None:
    """Run a grid of experiments; finished cells are kept, so a repeated command resumes."""
    from leakgauge.evidence.parts import parts_of_grid
    from leakgauge.runs.page import read_comparison, write_page

    if jobs is not None:
        require_count(jobs, "--jobs")
    grid = _grid(file, size, _by_key(set_, "--set"), _by_key(only, "--only"))
    gate_options.check([grid.question], questions())
    devices = {cell.device for cell in grid.cells}
    for device in devices if address is None else ():
        options.check_device(device)
    path = out or options.RUNS / "-".join(part for part in (grid.name, grid.size) if part)
    notices = Console(stderr=True)
    began = time.perf_counter()
    stopped = f"finished cells are kept in {path}; to resume, repeat the command"
    with stoppable(notices, stopped), bounded(max_memory):
        runner = make_executor(
            executor,
            jobs=jobs,
            address=address,
            max_memory=max_memory,
            gpu=any(one.startswith("cuda") for one in devices),
        )
        refused = _with_progress(grid, path, runner, notices)
    for outcome in refused:
        notices.print(Text(f"refused: {_named(outcome, grid)}: {outcome.refusal}"), soft_wrap=True)
    comparison, question = read_comparison(path, questions())
    gate = gate_options.evaluate(parts_of_grid(comparison, question, path))
    if comparison.cells:
        report = write_page(path, questions())
        if json_:
            values = as_json(comparison, question.metrics, path, report)
            print(json.dumps({**values, **gate_as_json(gate)}, allow_nan=False))
        else:
            _print_answer(comparison, question, report, time.perf_counter() - began)
            print_gate(gate, wide_console())
    exit_with(gate, refused=bool(refused))


def as_json(
    comparison: "Comparison", metrics: "Mapping[str, Metric]", out: Path, report: Path
) -> dict[str, Any]:
    """Return every cell with its accumulated figures, and ours next to the paper's."""
    from leakgauge.report.compare import by_knowledge, compared_with_paper
    from leakgauge.report.warned import warnings_of

    cells = [
        {
            **finished.settings,
            "knowledge": knowledge,
            "measurements": {name: _ends(one.estimate) for name, one in means.items()},
        }
        for finished in comparison.cells.values()
        for knowledge, means in by_knowledge([finished], metrics).items()
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
        for row in compared_with_paper(comparison, metrics)
    ]
    return {
        "name": comparison.name,
        "size": comparison.size,
        "out": str(out),
        "report": str(report),
        "asked": comparison.asked,
        "warnings": warnings_of(comparison.cells.values()),
        "cells": cells,
        "compare": rows,
    }


def duration(seconds: float) -> str:
    """Return a time in words, to two units.

    >>> duration(42.4), duration(61), duration(7322)
    ('42 s', '1 min 1 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class _Left(ProgressColumn):
    """Counts down to the expected end."""

    def render(self, task: Task) -> Text:
        """Return the time left in words; an empty text if it is unknown."""
        until = task.fields["until"]
        left = None if until is None else max(0.0, until - time.monotonic())
        return Text("" if left is None else f"about {duration(left)} left")


def _grid(
    file: Path, size: str | None, overrides: Mapping[str, str], only: Mapping[str, str]
) -> "Grid":
    from leakgauge.runs.grid import unfold
    from leakgauge.runs.grid_file import read_grid_file

    try:
        return unfold(read_grid_file(file), questions(), size=size, overrides=overrides, only=only)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def _by_key(texts: list[str] | None, option: str) -> dict[str, str]:
    """Return the values of ``KEY=VALUE,...``, by key."""
    pairs = {}
    for text in texts or ():
        name, equals, values = text.partition("=")
        require(
            bool(name and equals and values),
            f"{option} is {text!r}; expected KEY=VALUE,..., for example seed=0,1",
        )
        require(
            name not in pairs,
            f"{option} names {name!r} twice; write its values once, separated by commas",
        )
        pairs[name] = values
    return pairs


def _with_progress(
    grid: "Grid", out: Path, executor: "Executor", notices: Console
) -> "list[CellOutcome]":
    from leakgauge.runs.runner import run_grid

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bars = Progress(*columns, TimeElapsedColumn(), _Left(), console=notices)
    bar = bars.add_task(f"{grid.name}: cells", total=None, until=None)
    with contextlib.ExitStack() as shown:

        def progress(done: int, of: int, left: float | None) -> None:
            if not bars.live.is_started:  # not before the folder is ours: a refusal is one line
                shown.enter_context(bars)
            until = None if left is None or done == of else time.monotonic() + left
            bars.update(bar, completed=done, total=of, until=until)

        def say(text: str) -> None:
            notices.print(Text(f"note: {text}"), soft_wrap=True)

        return run_grid(grid, out, executor=executor, progress=progress, say=say)


def _named(outcome: "CellOutcome", grid: "Grid") -> str:
    """Return a cell by the settings that vary in the grid."""
    from leakgauge.report.compare import varying
    from leakgauge.runs.spec import plain

    settings = plain(outcome.spec)
    names = varying([plain(cell) for cell in grid.cells]) or ["data"]
    return ", ".join(f"{name} {settings[name]}" for name in [*names, "seed"])


def _print_answer(
    comparison: "Comparison", question: "Question", report: Path, seconds: float
) -> None:
    from leakgauge.report.compare import compared_with_paper

    console = wide_console()
    rows = compared_with_paper(comparison, question.metrics)
    console.print(
        paper_table(rows, question.metrics) if rows else cells_table(comparison, question)
    )
    console.print(
        Text(
            f"{len(comparison.cells)} of {comparison.asked} cells; report: {report}  "
            f"({duration(seconds)})"
        ),
        soft_wrap=True,
    )


def _ends(estimate: "Estimate") -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}
