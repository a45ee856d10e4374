"""The tables of the reproductions: rows of the pages, their verdicts and counts."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reproductions"
PAPERS = ("ccs24", "nasr19", "agic", "mo21", "tokens")
PAGES = [FOLDER / f"{name}.md" for name in PAPERS]
VERDICTS = ("exact", "corrected", "ours", "not possible here")

HEAD = r"^\| in the paper \|[^\n]*\n\|[-| ]*\n((?:\|[^\n]*\n)+)"


def rows(page: Path) -> list[list[str]]:
    """Return the cells of the table rows with a verdict in the third column."""
    tables = re.findall(HEAD, page.read_text(encoding="utf-8"), re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def verdict_of(row: list[str]) -> str:
    """Return the verdict that a row begins with; empty if it has none."""
    return next((one for one in VERDICTS if re.match(rf"{one}\b", row[2])), "")


def counts_by_class() -> str:
    """Return the table of the index: the number of rows of each page by verdict."""
    lines = [f"| page | {' | '.join(VERDICTS)} | rows |", f"|---|{'---|' * (len(VERDICTS) + 1)}"]
    total = [0] * (len(VERDICTS) + 1)
    for page in PAGES:
        found = [verdict_of(one) for one in rows(page)]
        each = [*(found.count(verdict) for verdict in VERDICTS), len(found)]
        total = [before + more for before, more in zip(total, each, strict=True)]
        lines.append(f"| {page.stem} | {' | '.join(map(str, each))} |")
    return "\n".join([*lines, f"| all | {' | '.join(map(str, total))} |"])
