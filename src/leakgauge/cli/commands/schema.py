"""``leakgauge schema``: what a grid file may hold."""

import json
from typing import Annotated

import typer

from leakgauge.catalog import questions

EXAMPLES = ("leakgauge schema > grid.schema.json", "leakgauge schema --markdown")

Markdown = Annotated[bool, typer.Option("--markdown", help="print a page for readers instead")]


def schema(markdown: Markdown = False) -> None:
    """Print the JSON Schema of the grid files that leakgauge run plays."""
    from leakgauge.runs import schema as made

    if markdown:
        print(made.page(questions()), end="")
    else:
        print(json.dumps(made.schema(questions()), indent=2))
