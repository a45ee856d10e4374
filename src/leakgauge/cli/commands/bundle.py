"""``leakgauge bundle DIR...``: many runs as one static page."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = (
    "leakgauge bundle leakgauge-runs --out history",
    "leakgauge bundle audit-before audit-after nightly --out history",
)


def bundle(
    runs: Annotated[
        list[Path], typer.Argument(help="the --out of finished runs, or folders that hold them")
    ],
    out: Annotated[
        Path, typer.Option(help="folder to write: new, empty, or an earlier bundle")
    ] = ...,  # type: ignore[assignment]  # typer's sign for an option that must be given
) -> None:
    """Write many runs as one static page: a list, figures over time, two runs side by side."""
    from leakgauge.cli.bundling import bundled
    from leakgauge.cli.stopping import REFUSED

    written = bundled(runs, out)
    print(f"runs: {written.runs}")
    print(f"report: {written.index}")
    if written.unread:
        raise typer.Exit(REFUSED)
