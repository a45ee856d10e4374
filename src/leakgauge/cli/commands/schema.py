"""``leakgauge schema``: what a grid file may hold."""

import json
from typing import Annotated

import typer

from leakgauge.catalog import questions
from leakgauge.core.checks import require

EXAMPLES = (
    "leakgauge schema > grid.schema.json",
    "leakgauge schema --markdown",
    "leakgauge schema --card > audit-card.schema.json",
)

Markdown = Annotated[bool, typer.Option("--markdown", help="print a page for readers instead")]

OfCard = Annotated[bool, typer.Option("--card", help="print the schema of audit cards instead")]


def schema(markdown: Markdown = False, card: OfCard = False) -> None:
    """Print the JSON Schema of the grid files of leakgauge run, or of audit cards."""
    from leakgauge.evidence.card_model import card_schema
    from leakgauge.runs.keys_page import keys_page
    from leakgauge.runs.schema import grid_schema

    require(not (markdown and card), "--markdown and --card exclude each other; leave one out")
    if markdown:
        print(keys_page(questions()), end="")
    else:
        found = card_schema() if card else grid_schema(questions())
        print(json.dumps(found, indent=2, ensure_ascii=False))
