"""Check the tables of the reproductions: no cell is empty, every place exists, counts are right."""

import importlib
import re
from pathlib import Path

import pytest

from support.papers import FOLDER, PAGES, ROOT, counts_by_class, rows, verdict_of

PLACE = re.compile(r"`(leakgauge\.[a-z_0-9.]+):([A-Za-z_0-9.]+)`")
FILE = re.compile(r"`((?:experiments|tests|docs|src)/[^`]+)`")
ROWS = [(page.stem, one) for page in PAGES for one in rows(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_is_full_and_has_a_verdict(page: Path) -> None:
    found = rows(page)

    assert len(found) > 20
    for one in found:
        assert len(one) == 3, one
        assert all(one), f"{page.name} has an empty cell: {one}"
        assert verdict_of(one), one
        assert one[2] == "exact" or len(one[2].split()) > 1, f"no reason: {one}"
        if verdict_of(one) != "not possible here":
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


def test_the_index_counts_the_rows_by_class() -> None:
    """Where it fails, the table in the message belongs on the page."""
    table = counts_by_class()
    assert table in (FOLDER / "index.md").read_text(encoding="utf-8"), f"\n\n{table}\n"
