"""``leakgauge card DIR``: the audit card of a finished run."""

from pathlib import Path
from typing import Annotated

import typer

from leakgauge.catalog import questions

EXAMPLES = (
    "leakgauge card leakgauge-runs/audit-20260101-120000 --context release.yaml",
    "leakgauge card run --out evidence --redact",
    "leakgauge card run --model-index visit-planner",
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
    model_index: Annotated[
        str | None,
        typer.Option(
            help="name of the model: also write model-index.yaml for its Hugging Face card"
        ),
    ] = None,
) -> None:
    """Write what an auditor needs of a finished run: audit-card.json and audit-card.md."""
    from leakgauge.core.files import write_text
    from leakgauge.evidence.card import make_card
    from leakgauge.evidence.card_file import write_card
    from leakgauge.evidence.context import read_context
    from leakgauge.evidence.model_index import MODEL_INDEX_FILE

    declared = read_context(context)
    made = make_card(folder, questions(), declared, redact=redact)
    index = "" if model_index is None else _index(folder, model_index)
    paths = write_card(made, out or folder)
    for name, path in zip(("card", "page"), paths, strict=True):
        print(f"{name}: {path}")
    if index:
        path = (out or folder) / MODEL_INDEX_FILE
        write_text(path, index)
        print(f"model index: {path}")


def _index(folder: Path, model_name: str) -> str:
    """Return the model-index of a finished run as YAML."""
    from leakgauge.evidence.model_index import model_index
    from leakgauge.runs.differences import read_finished

    return model_index(read_finished(folder), questions(), model_name)
