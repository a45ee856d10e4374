"""Check the pages made from the code: they are complete, and diagrams are up to date."""

import doctest
import importlib
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from leakgauge.catalog import questions
from leakgauge.cli.app import app, load_commands
from leakgauge.results.measurements import Estimate, Measurement

DOCS = Path(__file__).parents[2] / "docs"
EXT = DOCS / "_ext"
NAMES = ("check_links", "command_line", "diagrams", "gallery", "markdown_text", "schema_pages")


@pytest.fixture(scope="module")
def ext() -> Iterator[dict[str, ModuleType]]:
    """Yield the modules that make pages, except those that need Sphinx."""
    sys.path.insert(0, str(EXT))
    try:
        yield {name: importlib.import_module(name) for name in NAMES}
    finally:
        sys.path.remove(str(EXT))
        for name in NAMES:
            sys.modules.pop(name, None)


def test_their_examples_are_right(ext: dict[str, ModuleType]) -> None:
    found = [doctest.testmod(one) for one in ext.values()]
    assert sum(one.attempted for one in found) >= 3
    assert sum(one.failed for one in found) == 0


def test_the_command_line_has_every_command_and_option(ext: dict[str, ModuleType]) -> None:
    load_commands()
    page = ext["command_line"].page()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        section = page.split(f"## `leakgauge {name}`\n")[1].split("\n## ")[0]
        for one in command.params:
            if one.param_type_name == "option" and not one.hidden:
                assert all(f"`{word}`" in section for word in one.opts), (name, one.opts)


def test_every_field_of_a_measurement_has_its_meaning(ext: dict[str, ModuleType]) -> None:
    rows = [line for line in ext["schema_pages"].measurements().splitlines() if line[:3] == "| `"]
    assert {line.split("`")[1] for line in rows} >= {
        *(one.name for kind in (Measurement, Estimate) for one in fields(kind)),
    }
    assert [line for line in rows if line.endswith("|  |")] == []


def test_every_metric_is_listed(ext: dict[str, ModuleType]) -> None:
    page = ext["schema_pages"].metrics()
    for question in questions().values():
        assert all(f"| `{name}` |" in page for name in question.metrics)


def test_every_part_of_the_card_is_listed(ext: dict[str, ModuleType]) -> None:
    page = ext["schema_pages"].card()
    links = {part.split(")")[0] for part in page.split("](#")[1:]}
    headings = {line[3:].lower() for line in page.splitlines() if line.startswith("## ")}
    assert links <= headings


def test_the_diagrams_are_up_to_date(ext: dict[str, ModuleType]) -> None:
    """Run ``python docs/_ext/diagrams.py`` to make them."""
    drawn = {
        f"{name}.svg": ext["diagrams"].svg(one) for name, one in ext["diagrams"].DIAGRAMS.items()
    }
    files = {one.name: one.read_text("utf-8") for one in (DOCS / "diagrams").glob("*.svg")}
    assert files == drawn
    page = (DOCS / "explanations" / "threat-models.md").read_text("utf-8")
    assert [name for name in drawn if f"(../diagrams/{name})" not in page] == []


def test_broken_links_of_a_site_are_found(ext: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">1</a><a href="b.html#z">2</a><a href="#x">3</a>'
        '<img src="none.png"><a href="https://example.org/none">4</a></p>',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="y"></p>', encoding="utf-8")
    assert ext["check_links"].missing(tmp_path) == ["a.html: b.html#z", "a.html: none.png"]
