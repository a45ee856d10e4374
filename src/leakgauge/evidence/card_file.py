"""The files of a card: JSON with a seal, a Markdown page, and the checksums of the run's files."""

import hashlib
import json
from pathlib import Path

from leakgauge.core.files import checksum_of, write_text
from leakgauge.evidence.card_model import Card, Page
from leakgauge.evidence.card_page import card_page
from leakgauge.evidence.gate import GATE_FILE
from leakgauge.results.measurements import MEASUREMENTS_FILE, REPORT_FILE, RUN_FILE
from leakgauge.runs.audit import REFUSED_FILE

CARD_FILE, PAGE_FILE = "audit-card.json", "audit-card.md"
CELLS = "cells"
BESIDE = (RUN_FILE, MEASUREMENTS_FILE, REPORT_FILE, REFUSED_FILE, "controls.yaml", GATE_FILE)
"""Files of a run that a card vouches for, beside all files of its cells; times are none."""


def covered_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256, in hex, of each file that a card vouches for, by its path in the folder.

    Raises:
        InputError: a file cannot be read.
    """
    cells = (path for path in sorted((folder / CELLS).rglob("*")) if path.is_file())
    paths = [*(folder / name for name in BESIDE if (folder / name).is_file()), *cells]
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in paths}


def write_card(card: Card, folder: Path) -> tuple[Path, Path]:
    """Write a card as JSON and as a page, with the page's checksum and the seal; return both paths.

    Args:
        card: of ``make_card``.
        folder: for both files.
    """
    page = card_page(card)
    named = Page(name=PAGE_FILE, sha256=_sha256(page))
    sealed = sealed_card(card.model_copy(update={"page": named}))
    paths = folder / CARD_FILE, folder / PAGE_FILE
    write_text(paths[0], card_text(sealed))
    write_text(paths[1], page)
    return paths


def sealed_card(card: Card) -> Card:
    """Return a card with its seal: the SHA-256 of its file with an empty seal."""
    bare = card.model_copy(update={"seal": ""})
    return bare.model_copy(update={"seal": _sha256(card_text(bare))})


def card_text(card: Card) -> str:
    """Return the only text of a card's JSON file."""
    values = card.model_dump(mode="json")
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
