"""Check the tables of the reproductions: no cell is empty, every place exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ("agic", "ccs24", "mo21", "nasr19", "tokens")
PAGES = [ROOT / "docs" / "reproductions" / f"{name}.md" for name in PAPERS]
VERDICTS = ("exact", "corrected", "not possible here")

HEAD = r"^\| in the paper \|[^\n]*\n\|[-| ]*\n((?:\|[^\n]*\n)+)"
PLACE = re.compile(r"`(leakgauge\.[a-z_0-9.]+):([A-Za-z_0-9.]+)`")
FILE = re.compile(r"`((?:experiments|tests|docs|src)/[^`]+)`")


def rows(page: Path) -> list[list[str]]:
    """Return the cells of the table rows with a verdict in the third column."""
    tables = re.findall(HEAD, page.read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


ROWS = [(page.stem, one) for page in PAGES for one in rows(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_is_full_and_has_a_verdict(page: Path) -> None:
    found = rows(page)

    assert len(found) > 20
    for one in found:
        assert len(one) == 3, one
        assert all(one), f"{page.name} has an empty cell: {one}"
        assert one[2].startswith(VERDICTS), one
        assert one[2] == "exact" or len(one[2].split()) > 1, f"no reason: {one}"
        if not one[2].startswith("not possible here"):
            assert PLACE.search(one[1]) or FILE.search(one[1]), f"no place: {one}"


@pytest.mark.parametrize(("page", "row"), ROWS, ids=[f"{page}-{row[0]}" for page, row in ROWS])
def test_every_place_exists(page: str, row: list[str]) -> None:
    for module, name in PLACE.findall(row[1]):
        held = importlib.import_module(module)
        for part in name.split("."):
            assert hasattr(held, part), f"{page}, {row[0]}: {module} has no {name}"
            held = getattr(held, part)
    for path in FILE.findall(row[1]):
        assert (ROOT / path).exists(), f"{page}, {row[0]}: no file {path}"
