"""A comparison at the command line: the reference of a run, and the printed differences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from leakgauge.catalog import questions
from leakgauge.cli.gating import wide_console
from leakgauge.core.checks import require

if TYPE_CHECKING:
    from leakgauge.evidence.between import TwoRuns
    from leakgauge.evidence.parts import RunParts
    from leakgauge.report.differences.compared import Differences
    from leakgauge.report.differences.difference import AuditDifference
    from leakgauge.runs.audit import AuditRun
    from leakgauge.runs.question import Question


@dataclass(frozen=True)
class Reference:
    """A finished audit that another one is compared with.

    Attributes:
        run: the audit.
        parts: its questions.
    """

    run: "AuditRun"
    parts: "RunParts"

    def compared_with(self, audit: "AuditRun", parts: "RunParts") -> "TwoRuns":
        """Return the reference and a finished audit with their differences.

        Raises:
            InputError: the two have no figure in common.
        """
        from leakgauge.evidence.between import two_runs

        return two_runs(self.run, audit, parts, questions())


def read_reference(folder: Path, out: Path | None, asked: "Sequence[Question]") -> Reference:
    """Return the finished audit of a folder, to compare a new one with.

    Args:
        folder: the folder of ``--against``.
        out: the folder of the new audit; None for one that is made.
        asked: the questions of the new audit.

    Raises:
        InputError: the folder holds no finished audit, is that of the new one, or none of its
            questions is asked.
    """
    from leakgauge.evidence.parts import parts_of_audit
    from leakgauge.runs.differences import read_finished, require_finished

    shown = repr(str(folder))
    require(
        out is None or out.resolve() != folder.resolve(),
        f"--against and --out are both {shown}; give the new run another --out",
    )
    run = read_finished(folder)
    require_finished(run)
    parts = parts_of_audit(run, None, questions())
    there = [one.name for one in parts.questions]
    require(
        any(one.name in there for one in asked),
        f"--against is {shown}, which asked {', '.join(there)}; nothing of that is asked here",
    )
    return Reference(run, parts)


def print_differences(found: "Differences", out: Path | None = None, *, verbose: bool) -> None:
    """Print what differs between two audits, one table for each test.

    Args:
        found: the differences.
        out: their page, if it was written.
        verbose: whether to print all figures, not the main ones alone.
    """
    from leakgauge.report.wording import quoted

    notices, console = Console(stderr=True), wide_console()
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


def _print_tables(console: Console, rows: "list[AuditDifference]") -> None:
    """Print one table for each test."""
    by_title: dict[str, list[AuditDifference]] = {}
    for one in rows:
        by_title.setdefault(one.title, []).append(one)
    for title, some in by_title.items():
        console.print(Text(f"\n{title}", style="bold"), soft_wrap=True)
        console.print(_table(some))
    console.print()


def _table(rows: "list[AuditDifference]") -> Table:
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
