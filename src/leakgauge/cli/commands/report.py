"""``leakgauge report DIR``: rebuilds the page of a folder."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli.gating import GateOptions, exit_with, gated, print_gate, wide_console
from leakgauge.core.checks import require

EXAMPLES = (
    "leakgauge report leakgauge-runs/audit-20260101-120000",
    "leakgauge report leakgauge-runs/audit-20260101-120000 --fail-if 'advantage>0.05'",
)


@gated
def report(
    folder: Annotated[Path, typer.Argument(help="the --out of a finished run")],
    gate_options: GateOptions,
) -> None:
    """Rebuild the report of a finished run from its measurements, and evaluate rules on it."""
    from leakgauge.evidence.parts import read_run
    from leakgauge.runs.page import write_page

    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    run = read_run(folder, questions())
    gate_options.check(run.questions, questions())
    path = write_page(folder, questions())
    gate = gate_options.evaluate(run, keep=True)
    print_gate(gate, wide_console())
    print(f"report: {path}")
    exit_with(gate, refused=False)
