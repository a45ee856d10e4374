"""``leakgauge report DIR``: rebuilds the page of a folder."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.core.checks import require

EXAMPLES = ("leakgauge report leakgauge-runs/audit-20260101-120000",)


def report(folder: Annotated[Path, typer.Argument(help="the --out of a finished run")]) -> None:
    """Rebuild the report of a finished run from its measurements."""
    from leakgauge.runs.page import write_page

    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    print(f"report: {write_page(folder, questions())}")
