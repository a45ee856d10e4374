"""``leakgauge verify CARD DIR``: whether an audit card still matches its run."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakgauge.cli.stopping import DIFFERS

EXAMPLES = ("leakgauge verify run/audit-card.json run",)


def verify(
    card: Annotated[Path, typer.Argument(help="the audit-card.json")],
    folder: Annotated[Path, typer.Argument(help="the --out of its run")],
) -> None:
    """Check an audit card against its schema, its seal and the files of its run.

    Exit code 0: all match. 3: something differs, one line each. 2: wrong usage.
    """
    from leakgauge.evidence.card_file import verify as differences

    found = differences(card, folder)
    for line in found:
        print(line, file=sys.stderr)
    if found:
        raise typer.Exit(DIFFERS)
    print(f"{card} matches {folder}")
