"""``leakgauge report DIR``: rebuilds the page of a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli.gating import GateOptions, exit_with, gated, print_gate, wide_console
from leakgauge.core.checks import require

if TYPE_CHECKING:
    from leakgauge.runs.audit import AuditRun

EXAMPLES = (
    "leakgauge report leakgauge-runs/audit-20260101-120000",
    "leakgauge report leakgauge-runs/audit-20260101-120000 --fail-if 'advantage>0.05'",
    "leakgauge report leakgauge-runs/audit-20260101-120000 --log-to mlflow",
)


@gated
def report(
    folder: Annotated[Path, typer.Argument(help="the --out of a finished run")],
    gate_options: GateOptions,
    log_to: Annotated[
        str | None,
        typer.Option(help="also log it to mlflow, wandb or tensorboard, without private records"),
    ] = None,
) -> None:
    """Rebuild the report of a finished run from its measurements, and evaluate rules on it."""
    from leakgauge.evidence.parts import read_run
    from leakgauge.runs.page import write_page

    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    audit = None if log_to is None else _loggable(folder, log_to)
    run = read_run(folder, questions())
    gate_options.check(run.questions, questions())
    path = write_page(folder, questions())
    gate = gate_options.evaluate(run, keep=True)
    print_gate(gate, wide_console())
    print(f"report: {path}")
    if audit is not None and log_to is not None:
        print(_log(audit, log_to))
    exit_with(gate, refused=False)


def _loggable(folder: Path, tracker: str) -> "AuditRun":
    """Return the audit of a folder; refuse a grid, and a tracker that cannot be used."""
    from leakgauge.integrations.trackers import check_tracker
    from leakgauge.runs.differences import read_finished

    check_tracker(tracker)
    return read_finished(folder)


def _log(audit: "AuditRun", tracker: str) -> str:
    """Log an audit, and return what went where."""
    from leakgauge.evidence.logged import logged
    from leakgauge.integrations.trackers import log_to
    from leakgauge.runs.page import sections_of

    known = questions()
    return log_to(tracker, logged(audit, sections_of(audit, known), known))
