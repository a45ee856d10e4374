"""Run the Python of how-to pages and explanations, each page in one session."""

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TESTED_ELSEWHERE = {"monitor.md", "opacus.md"}
SLOW = {"flower-privacy.md", "compare.md", "text.md"}  # other tests do the same, too
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^# (\w+\.py)\b")

PAGES = [
    pytest.param(page, marks=pytest.mark.slow) if page.name in SLOW else page
    for folder in ("how-to", "explanations", "reference")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name not in TESTED_ELSEWHERE and BLOCK.search(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block whose first line is ``# name.py`` is also a file that later blocks can import."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    session: dict[str, object] = {"__name__": "page"}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if named := FILE.match(block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
        exec(compile(block, page.name, "exec"), session)
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
