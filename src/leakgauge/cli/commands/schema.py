"""``leakgauge schema``: what a grid file may hold."""

import json
from typing import Annotated

import typer

from leakgauge.catalog import questions

EXAMPLES = ("leakgauge schema > grid.schema.json", "leakgauge schema --markdown")

Markdown = Annotated[bool, typer.Option("--markdown", help="print a page for readers instead")]


def schema(markdown: Markdown = False) -> None:
    """Print the JSON Schema of the grid files that leakgauge run plays."""
    from leakgauge.runs.keys_page import keys_page
    from leakgauge.runs.schema import grid_schema

    if markdown:
        print(keys_page(questions()), end="")
    else:
        print(json.dumps(grid_schema(questions()), indent=2, ensure_ascii=False))
