"""Checks a card: its schema, its seal, its page, and every file that it vouches for."""

from pathlib import Path

import pydantic

from leakgauge.core.checks import require
from leakgauge.core.files import checksum_of
from leakgauge.evidence.card_file import card_text, covered_files, sealed_card
from leakgauge.evidence.card_model import Card


def verify(card: Path, folder: Path) -> list[str]:
    """Return one line for each difference between a card and a run; empty where all match.

    Args:
        card: the JSON file. The page beside it is checked where there is one.
        folder: of the run.

    Raises:
        InputError: there is no such file or folder.
    """
    require(card.is_file(), f"no such card: {str(card)!r}; expected an audit-card.json")
    require(folder.is_dir(), f"no such folder: {str(folder)!r}; expected the --out of a run")
    try:
        content = card.read_bytes()
        read = Card.model_validate_json(content)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        return [f"{card.name}: does not fit its schema ({where}: {problem['msg']})"]
    return [*_own(card, read, content), *_page(card, read), *_files(read, folder)]


def _own(path: Path, card: Card, content: bytes) -> list[str]:
    if sealed_card(card).seal != card.seal:
        return [f"{path.name}: was changed: its content does not match its seal"]
    if card_text(card).encode() != content:
        return [f"{path.name}: was changed: it is not written as leakgauge writes it"]
    return []


def _page(path: Path, card: Card) -> list[str]:
    page = path.with_name(card.page.name)
    if not page.is_file() or checksum_of(page) == card.page.sha256:
        return []
    return [f"{page.name}: was changed since the card was made"]


def _files(card: Card, folder: Path) -> list[str]:
    found = covered_files(folder)
    lines = []
    for name in dict.fromkeys([*card.files, *found]):
        if name not in found:
            lines.append(f"{name}: is missing from the run")
        elif name not in card.files:
            lines.append(f"{name}: is in the run and not in the card")
        elif card.files[name] != found[name]:
            lines.append(f"{name}: was changed since the card was made")
    return lines
