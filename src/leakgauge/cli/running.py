"""Runs what was prepared: folder, progress, records, report, and what is printed."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from leakgauge.cli.options import run_path
from leakgauge.cli.stopping import REFUSED, stoppable
from leakgauge.cli.summary import as_json, information_lines, promise_lines
from leakgauge.inference.report.cells import cells
from leakgauge.inference.run.prepare import Prepared
from leakgauge.inference.run.resumable import run_stages
from leakgauge.report import answer, panels, utility, verdicts, write_report
from leakgauge.results.measurements import Measurement, Run
from leakgauge.runs.store import RunFolder

FEW = 3
"""With more tests than this, what the success of each implies is left to the report."""

STYLES = {"strong": "bold red", "clear": "red", "weak": "yellow", "none": "green"}


def run(
    prepare: Callable[[], Prepared], out: Path | None, workers: int | None, *, json_: bool
) -> None:
    """Prepare, run to the end, write records and report, print the answer."""
    began = time.perf_counter()
    notices = Console(stderr=True)
    with notices.status("reading and encoding the data"):
        prepared = prepare()
    path = run_path(out, prepared.run.command)
    folder = RunFolder.claim(path, prepared.run)
    for note in prepared.run.notes:
        notices.print(Text(f"note: {note}"), soft_wrap=True)
    refused: list[str] = []
    with stoppable(notices, f"to go on, repeat the command with --out {path}"):
        records = _with_progress(folder, prepared, workers, notices, refused)
    for text in refused:
        notices.print(Text(f"refused: {text}"), soft_wrap=True)
    report = write_report(folder.path)
    if json_:
        print(json.dumps(as_json(prepared.run, records, report), allow_nan=False))
    else:
        _tell(prepared.run, records, report, time.perf_counter() - began)
    if refused:
        raise typer.Exit(REFUSED)


def _with_progress(
    folder: RunFolder,
    prepared: Prepared,
    workers: int | None,
    notices: Console,
    refused: list[str],
) -> list[Measurement]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=notices) as bars:
        ids: dict[str, int] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in ids:
                ids[what] = bars.add_task(what, total=of)
            bars.update(bars.task_ids[ids[what]], completed=done)

        return run_stages(
            folder,
            prepared.stages,
            dataset=prepared.dataset,
            label=prepared.label,
            workers=workers,
            progress=progress,
            refused=refused.append,
        )


def _tell(run: Run, records: list[Measurement], report: Path, seconds: float) -> None:
    console = Console()
    for verdict in verdicts(run, records):
        console.print(
            Text(f"\n{verdict.headline}", style=STYLES.get(verdict.level, "bold"))
            + Text(f" ({verdict.test})", style="dim")
        )
        console.print(Text(verdict.text.replace("`", "'")))
    for record in utility(records):
        under = "" if record.defense == "none" else f" under '{record.defense}'"
        console.print(
            Text(
                f"\nThe model trained for '{record.game}'{under} is right on "
                f"{record.estimate.value:.1%} of the test records "
                f"(always guessing the most frequent label: {record.chance:.1%})."
            )
        )
    tests = cells(records)
    information = information_lines(run, records) if len(tests) <= FEW else []
    for line in [*promise_lines(run), *information, *map(answer, panels(tests, records))]:
        console.print(Text("\n" + line.replace("`", "'")))
    console.print(Text(f"\nreport: {report}  ({seconds:.0f} s)"), soft_wrap=True)
