"""``leakgauge compare DIR DIR``: the differences of two audits."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.core.checks import require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from leakgauge.report.differences.compared import Differences
    from leakgauge.report.differences.difference import AuditDifference

EXAMPLES = (
    "leakgauge compare audit-before audit-after",
    "leakgauge compare plain defended --defense prune:rate=0.99 --out differences.html",
)

WIDEST = 10_000


def compare(
    before: Annotated[Path, typer.Argument(help="the --out of a finished audit")],
    after: Annotated[Path, typer.Argument(help="the --out of the audit after a change")],
    defense: Annotated[
        list[str] | None,
        typer.Option(
            help="defense of AFTER to compare; default: all (repeatable)", metavar="<str>"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="defense of BEFORE to compare with; default: the same one, else none",
            metavar="<str>",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="HTML file to write", metavar="<file>")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="print all figures, not the main ones alone")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="print one JSON object and nothing else")
    ] = False,
) -> None:
    """Compare two finished audits: what leaks less, what leaks more, and the price."""
    from leakgauge.runs.differences import compare_runs, read_finished

    require(
        out is None or (not out.is_dir() and out.parent.is_dir()),
        f"--out is {str(out)!r}; expected a file to write in a folder that exists",
    )
    found = compare_runs(
        read_finished(before),
        read_finished(after),
        questions(),
        defenses=defense or (),
        against=against or "",
    )
    if out is not None:
        found.to_html(out)
    if json_:
        print(json.dumps(found.to_json(), allow_nan=False))
    else:
        _print(found, out, verbose=verbose)


def _print(found: "Differences", out: Path | None, *, verbose: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from leakgauge.report.wording import quoted

    notices, console = Console(stderr=True), Console()
    if not console.is_terminal:
        console = Console(width=WIDEST)  # a pipe has no width to wrap at
    for line in found.warnings:
        notices.print(Text(f"warning: {line}", style="yellow"), soft_wrap=True)
    for one in found.changed:
        line = f"{one.where}: {one.name} is {one.before} before, {one.after} after"
        console.print(Text(line, style="dim"), soft_wrap=True)
    _print_tables(console, list(found.rows) if verbose else found.main)
    for line in (*found.notes, *(f"not compared: {line}" for line in found.only)):
        console.print(Text(quoted(line)), soft_wrap=True)
    if out is not None:
        console.print(Text(f"report: {out}"), soft_wrap=True)


def _print_tables(console: "Console", rows: "list[AuditDifference]") -> None:
    """Print one table for each test."""
    from rich.text import Text

    by_title: dict[str, list[AuditDifference]] = {}
    for one in rows:
        by_title.setdefault(one.title, []).append(one)
    for title, some in by_title.items():
        console.print(Text(f"\n{title}", style="bold"), soft_wrap=True)
        console.print(_table(some))
    console.print()


def _table(rows: "list[AuditDifference]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from leakgauge.cli.styles import verdict_text
    from leakgauge.report.wording import number, short, signed

    table = Table(box=None, padding=(0, 2, 0, 0))
    several = len({one.round for one in rows}) > 1
    for name in ("metric", *(["round"] if several else []), "before", "after", "difference",
                 "95 % interval", "verdict", "detectable"):  # fmt: skip
        table.add_column(name, no_wrap=True)
    for one in rows:
        found = one.estimate
        table.add_row(
            Text(one.metric.label),
            *([Text(one.round)] if several else []),
            number(one.before.estimate.value),
            number(one.after.estimate.value),
            signed(found.value),
            f"{signed(found.low)} to {signed(found.high)}",
            verdict_text(one.verdict, one.badge.level),
            "" if one.smallest is None else f"from {short(one.smallest)}",
        )
    return table
