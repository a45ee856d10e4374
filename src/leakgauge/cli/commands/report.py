"""``leakgauge report DIR``: rebuilds the page of a folder."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.cli.judging import Judging, exit_with, judged, print_gate, wide_console
from leakgauge.core.checks import require

EXAMPLES = (
    "leakgauge report leakgauge-runs/audit-20260101-120000",
    "leakgauge report leakgauge-runs/audit-20260101-120000 --fail-if 'advantage>0.05'",
)


@judged
def report(
    folder: Annotated[Path, typer.Argument(help="the --out of a finished run")], judging: Judging
) -> None:
    """Rebuild the report of a finished run from its measurements, and judge it by rules."""
    from leakgauge.evidence.parts import read_run
    from leakgauge.runs.page import write_page

    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    run = read_run(folder, questions())
    judging.check(run.questions, questions())
    path = write_page(folder, questions())
    gate = judging.judge(run, keep=True)
    print_gate(gate, wide_console())
    print(f"report: {path}")
    exit_with(gate, refused=False)
