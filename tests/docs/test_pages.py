"""Check the pages of the documentation: links exist, and every page is in a toctree."""

import fnmatch
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MADE = DOCS / "generated"
"""Output of a build, which is not in the repository and not read here."""

TOP = sorted(ROOT.glob("*.md"))
PAGES = [one for one in sorted(DOCS.rglob("*.md")) if MADE not in one.parents]

FENCE = re.compile(r"^(`{3,})(\{?\w*\}?)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TOCTREE = "{toctree}"


def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in GitHub's form."""
    words = (re.sub(r"[^\w\- ]", "", one.lower()) for one in HEADING.findall(prose(page)))
    return {one.strip().replace(" ", "-") for one in words}


def broken(page: Path, links: Iterable[str]) -> list[str]:
    """Return the links of a page to missing files or headings."""
    found = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def in_toctrees() -> set[Path]:
    """Return the files in toctrees, named by a path without suffix or by a pattern."""
    known = {one.relative_to(DOCS).with_suffix("").as_posix(): one for one in PAGES}
    named = {DOCS / "index.md"}
    for page in PAGES:
        here = page.parent.relative_to(DOCS)
        for _, kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
            lines = [one.strip() for one in body.splitlines()] if kind == TOCTREE else []
            for entry in (one for one in lines if one and one[0] != ":"):
                pattern = (here / entry).as_posix()
                named |= {known[one] for one in fnmatch.filter(known, pattern)} - {page}
    return named


@pytest.mark.parametrize("page", [*TOP, *PAGES], ids=lambda one: str(one.relative_to(ROOT)))
def test_links_exist(page: Path) -> None:
    links = [one for one in LINK.findall(prose(page)) if not re.match(r"\w+:", one)]
    assert broken(page, links) == []


def test_every_page_is_in_a_toctree() -> None:
    assert len(PAGES) > 40
    assert set(PAGES) - in_toctrees() == set()


def test_every_entry_of_a_toctree_is_a_page() -> None:
    for page in PAGES:
        for _, kind, body in FENCE.findall(page.read_text(encoding="utf-8")):
            if kind == TOCTREE and ":glob:" not in body:
                entries = [one for one in body.split("\n") if one.strip() and one[0] != ":"]
                missing = [one for one in entries if not (page.parent / f"{one}.md").is_file()]
                assert missing == [], page


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text("# A page\n", encoding="utf-8")
    other.write_text("## Two, three\n", encoding="utf-8")
    links = ["other.md", "none.md", "other.md#two-three", "other.md#four", "#a-page", "#b"]
    assert broken(page, links) == ["none.md", "other.md#four", "#b"]
