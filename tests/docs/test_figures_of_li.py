"""Check the classes of the figures of Li et al.: each follows from ours and the paper's."""

import re
from collections.abc import Iterator

import pytest

from leakgauge.catalog import questions
from leakgauge.runs.grid import unfold
from leakgauge.runs.grid_file import read_grid_file
from leakgauge.runs.sources import source_of
from support.papers import FOLDER, ROOT

PAGE = FOLDER / "ccs24-figures.md"
WITHIN, STRONGER = "within tolerance", "stronger, same conclusion"
CONTRADICTS = "contradicts the paper"
TOLERANCES = {"AUROC": 0.03, "success rate": 0.03, "advantage": 0.06, "TPR at 1 % FPR": 0.06}
TABLE = re.compile(r"^(\|[^\n]*\| class \|[^\n]*)\n\|[-| ]*\n((?:\|[^\n]*\n)+)", re.MULTILINE)


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figures() -> Iterator[dict[str, str]]:
    """Yield the rows with a number of the paper, by the names of their columns."""
    for head, body in TABLE.findall(PAGE.read_text(encoding="utf-8")):
        for line in body.splitlines():
            row = dict(zip(cells(head), cells(line), strict=False))
            if re.match(r"\d", row.get("paper", "")):
                yield row


ROWS = list(figures())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['figure']} {row['ours']}")
def test_a_class_follows_from_the_figures(row: dict[str, str]) -> None:
    printed, _, deviation = row["paper"].partition(" ± ")
    apart = float(row["ours"]) - float(printed)
    tolerance = max(TOLERANCES[row["figure"]], 2 * float(deviation or 0))
    inside = abs(apart) <= tolerance + 1e-9
    assert (row["class"] == WITHIN) == inside, row
    assert row["class"] in (WITHIN, STRONGER, CONTRADICTS)
    if row["class"] == STRONGER:
        assert apart > 0
    if row["class"] == CONTRADICTS and "why" in row:
        assert row["why"], f"no reason: {row}"


def test_the_page_counts_each_value_once() -> None:
    counted = {
        (row["figure"], row["ours"], row["paper"]): row["class"]
        for row in ROWS
        if row["figure"] in ("AUROC", "advantage")
    }
    found = list(counted.values())
    text = PAGE.read_text(encoding="utf-8")
    assert f"state {len(found)} values of AUROC and advantage" in text
    for name in (WITHIN, STRONGER, CONTRADICTS):
        assert f"| {name} | {found.count(name)} |" in text, (name, found.count(name))


SOURCES = {"Adult": "adult", "CREMA-D": "crema_d", "CelebA": "celeba", "UTKFace": "utkface-ccs24"}


def sizes(data: str, ask: str) -> tuple[int, int, str]:
    """Return the private and shadow records, and the blocks of all seeds, of section5.yaml."""
    file = ROOT / "experiments" / "ccs24" / "section5.yaml"
    grid = unfold(read_grid_file(file), questions(), size="paper")
    stages = [
        grid.question.prepare(cell, source_of(cell)).stages[0]
        for cell in grid.cells
        if cell.data == data and cell.ask == (ask,)
    ]
    blocks = sorted({int(one.game.block.max()) + 1 for one in stages})
    written = ", ".join(map(str, blocks)) if len(blocks) < 3 else f"{blocks[0]} to {blocks[-1]}"
    return len(stages[0].private), len(stages[0].public), written


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
@pytest.mark.parametrize("name", SOURCES)
def test_the_page_says_how_many_records_there_are(name: str) -> None:
    private, shadow, blocks = sizes(SOURCES[name], "property")
    of_shares = sizes(SOURCES[name], "proportion")
    assert of_shares[:2] == (private, shadow)
    start = f"| {name} | {private:,} | {shadow:,} | {blocks} | {of_shares[2]} "
    assert start in PAGE.read_text(encoding="utf-8")
