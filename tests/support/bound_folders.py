"""Commands that read the folder of a finished run, and edits of each file in it."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from leakgauge.core.files import write_yaml
from support import command, gated_audit

RUN, OTHER, GRID = "run", "other", "grid"
CONTEXT = "declared/context.yaml"


@dataclass(frozen=True)
class Reader:
    """A command on finished runs.

    Attributes:
        words: the command.
        folder: folder that it reads.
        reads: inputs by the path of a file, or a pattern of paths, in the folder.
        without: pattern of the files that it does not read; it may write them.
        makes: files whose change makes a new answer; that of others ends the command, which names
            the file.
    """

    words: tuple[str, ...]
    folder: str
    reads: Mapping[str, str]
    without: str = "none"
    makes: Mapping[str, str] = field(default_factory=dict)

    def files(self, base: Path) -> list[Path]:
        """Return all files of the folder that the command reads."""
        top = base / self.folder
        names = [path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file()]
        unread = rf"\..*|timings\.json|{self.without}"
        return [top / name for name in sorted(names) if not re.fullmatch(unread, name)]

    def input_of(self, path: Path, base: Path) -> str:
        """Return the name of the input that a file belongs to; empty for none."""
        name = path.relative_to(base / self.folder).as_posix()
        fits = (what for what, pattern in self.reads.items() if re.fullmatch(pattern, name))
        return next(fits, "")


AUDIT = {
    "description of the run": r"run\.yaml",
    "cells": r"cells/.*",
    "figures": r"measurements\.jsonl",
    "refusals": r"refused\.yaml",
}
GRID_FILES = {name: AUDIT[name] for name in ("description of the run", "cells")}
CONTROLLED = {
    **AUDIT,
    "controls": r"controls\.yaml",
    "page": r"report\.html",
    "records": r"exposure\.csv",
    "decision": r"gate\.json",
}
CARDS = r"audit-card\..*"
WRITTEN = rf"report\.html|exposure\.csv|gate\.json|controls\.yaml|{CARDS}"
UNREAD = rf"{WRITTEN}|cells/.*-(placebo|planted)/.*"

READERS: dict[str, Reader] = {
    "report": Reader(("report", RUN), RUN, AUDIT, UNREAD),
    "report of a grid": Reader(("report", GRID), GRID, GRID_FILES, r"report\.html"),
    "compare, before": Reader(("compare", RUN, OTHER), RUN, AUDIT, UNREAD),
    "compare, after": Reader(("compare", OTHER, RUN), RUN, AUDIT, UNREAD),
    "bundle": Reader(("bundle", RUN, "--out", "history"), RUN, AUDIT, UNREAD),
    "card": Reader(("card", RUN, "--out", "made"), RUN, CONTROLLED, CARDS),
    "card with declarations": Reader(
        ("card", RUN, "--context", CONTEXT, "--out", "made"), "declared",
        {"declarations": r"context\.yaml"}, makes={"declarations": "made/audit-card.json"},
    ),
    "verify": Reader(
        ("verify", f"{RUN}/audit-card.json", RUN), RUN,
        {**CONTROLLED, "card": r"audit-card\.json", "page of the card": r"audit-card\.md"},
    ),
}  # fmt: skip


def write_runs(folder: Path) -> None:
    """Write two audits of one table, the first with controls, rules and a card, and a grid."""
    table = gated_audit.write_people(folder)
    rule = ("--fail-if", "auroc.low > 0.95")
    ended = gated_audit.audit(table, "smokes", folder / RUN, "--controls", *rule)
    assert ended.returncode in (0, 3), ended.stderr
    other = gated_audit.audit(table, "smokes", folder / OTHER)
    assert other.returncode == 0, other.stderr
    write_yaml(folder / RUN / "refused.yaml", {"layers": "7 records are too few"})
    for made in ("declared", "made"):
        (folder / made).mkdir()
    (folder / CONTEXT).write_text("system: model 12\n")
    cell = {
        "data": "people.csv", "label": "income", "secret": "smokes", "rounds": 1, "trials": 120,
        "batch_size": 4, "shadow": 100, "adversary": "energies", "seed": [0, 1],
    }  # fmt: skip
    (folder / "grid.yaml").write_text(json.dumps({"name": "grid", "grids": [cell]}))
    for words in (
        ("report", RUN, *rule),
        ("card", RUN),
        ("run", "grid.yaml", "--out", GRID),
    ):
        ended = command.run(*words, cwd=folder)
        assert ended.returncode in (0, 3), ended.stderr


@contextmanager
def edited(path: Path) -> Iterator[None]:
    """Change a digit of a number, so that a text stays well formed; a byte where there is none."""
    before = path.read_bytes()
    digits = [one.start() for one in re.finditer(rb"(?<=[0-9.])[1-8]", before)]
    at = digits[len(digits) // 2] if digits else len(before) // 2
    path.write_bytes(before[:at] + bytes([before[at] + 1]) + before[at + 1 :])
    try:
        yield
    finally:
        path.write_bytes(before)
