"""``leakgauge card DIR``: the audit card of a finished run."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions

EXAMPLES = (
    "leakgauge card leakgauge-runs/audit-20260101-120000 --context release.yaml",
    "leakgauge card run --out evidence --redact",
)


def card(
    folder: Annotated[Path, typer.Argument(help="the --out of a finished run")],
    context: Annotated[
        Path | None,
        typer.Option(help="YAML file that declares the release: system, owner, purpose, ..."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder for the card (default: that of the run)")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="do not name the user or record most at risk")
    ] = False,
) -> None:
    """Write what an auditor needs of a finished run: audit-card.json and audit-card.md."""
    from leakgauge.evidence.card import make_card
    from leakgauge.evidence.card_file import write_card
    from leakgauge.evidence.context import read_context

    declared = read_context(context)
    paths = write_card(make_card(folder, questions(), declared, redact=redact), out or folder)
    for name, path in zip(("card", "page"), paths, strict=True):
        print(f"{name}: {path}")
