"""The files of a card: JSON with a seal, a Markdown page, and the checksums of the run's files."""

import functools
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pydantic

from leakgauge.core.checks import require
from leakgauge.core.files import checksum_of, write_text
from leakgauge.evidence.card_model import Card, CardFigure, CardPage
from leakgauge.evidence.context import Context
from leakgauge.evidence.gate import COMPARED_FILE, GATE_FILE
from leakgauge.evidence.markdown_text import escaped
from leakgauge.report.wording import number, short
from leakgauge.results.measurements import MEASUREMENTS_FILE, REPORT_FILE, RUN_FILE
from leakgauge.runs.audit import REFUSED_FILE
from leakgauge.runs.exposure import EXPOSURE_FILE

CARD_FILE, PAGE_FILE = "audit-card.json", "audit-card.md"
CELLS = "cells"
FILES = (
    *(RUN_FILE, MEASUREMENTS_FILE, REPORT_FILE, REFUSED_FILE),
    *(EXPOSURE_FILE, "controls.yaml", GATE_FILE, COMPARED_FILE),
)
"""Files of a run that a card covers, in addition to the files of its cells; not its times."""


def covered_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256, in hex, of each file that a card covers, by its path in the folder.

    Raises:
        InputError: a file cannot be read.
    """
    cells = (path for path in sorted((folder / CELLS).rglob("*")) if path.is_file())
    paths = [*(folder / name for name in FILES if (folder / name).is_file()), *cells]
    return {path.relative_to(folder).as_posix(): checksum_of(path) for path in paths}


def write_card(card: Card, folder: Path) -> tuple[Path, Path]:
    """Write a card of ``make_card`` as JSON, with its seal, and as a page; return both paths."""
    page = card_page(card)
    named = CardPage(name=PAGE_FILE, sha256=_sha256(page))
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


TEMPLATE = "audit-card.md.j2"
LARGE = 1000.0


def card_page(card: Card) -> str:
    """Return the card as Markdown: tables and short sentences, and no raw HTML."""
    declared = [(_title(name), getattr(card.context, name)) for name in Context.model_fields]
    text = _environment().get_template(TEMPLATE).render(card=card, declared=declared)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("leakgauge.evidence", "."),
        autoescape=False,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=escaped,
    )
    made.filters |= {"value": _value, "interval": _interval, "cell": _cell, "title": _title}
    return made


def _value(one: float | None) -> str:
    """Return a figure with three decimals; a large one with three digits."""
    if one is None:
        return "none"
    return short(one) if abs(one) >= LARGE else number(one)


def _interval(one: CardFigure | None) -> str:
    if one is None:
        return "none"
    high = "no upper end" if one.high is None else _value(one.high)
    return f"{_value(one.low)} to {high}"


def _cell(one: CardFigure | None) -> str:
    """Return a figure with its interval for a table's cell."""
    return "not played" if one is None else f"{_value(one.value)} ({_interval(one)})"


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def verify(card: Path, folder: Path) -> list[str]:
    """Return one line for each difference between a card and a run; empty if all match.

    Args:
        card: the JSON file. Its page is checked if it is in the same folder.
        folder: folder of the run.

    Raises:
        InputError: the file or the folder does not exist.
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
    return list(_changes(card, read, content, folder))


def _changes(path: Path, card: Card, content: bytes, folder: Path) -> Iterator[str]:
    """Yield the differences between a card, as its file has it, and its page and a run."""
    if sealed_card(card).seal != card.seal:
        yield f"{path.name}: was changed: its content does not match its seal"
    elif card_text(card).encode() != content:
        yield f"{path.name}: was changed: it is not written as leakgauge writes it"
    page, found = path.with_name(card.page.name), covered_files(folder)
    if page.is_file() and checksum_of(page) != card.page.sha256:
        yield f"{page.name}: was changed since the card was made"
    for name in dict.fromkeys([*card.files, *found]):
        if name not in found:
            yield f"{name}: is missing from the run"
        elif name not in card.files:
            yield f"{name}: is in the run and not in the card"
        elif card.files[name] != found[name]:
            yield f"{name}: was changed since the card was made"
