"""The section of kept updates in a report; it reads measurements and computes none."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.files import read_text
from leakgauge.federation.metrics import METRICS
from leakgauge.federation.report.wording import FederationVerdict, UpdateTable, tables, verdict
from leakgauge.federation.run.answering import NOTES_FILE
from leakgauge.federation.spec import PROPERTY, TITLES
from leakgauge.inversion.report.records import png_address
from leakgauge.report.facts import other_facts
from leakgauge.report.section import LEVELS, Line, Row, Section
from leakgauge.report.templates import render
from leakgauge.report.wording import quoted
from leakgauge.results.measurements import PICTURES_FILE
from leakgauge.runs.question import Answer, Question

PACKAGE = "leakgauge.federation.report"

PARTS = ("updates", "rounds", "clients", "public")
"""Sizes, in the order of the report."""

_UNTRIED = (
    "Updates are evaluated as they were sent. To see the effect of a defense, let the "
    "clients train with it, and audit what they send then."
)


def section(answer: Answer, question: Question, folder: Path) -> Section:
    """Return the section of an answer; equal measurements give equal bytes.

    Args:
        answer: answer to the question.
        question: the question; its name is the prefix of the anchors.
        folder: folder with notes on the updates and rebuilt pictures.

    Raises:
        InputError: a file is damaged.
    """
    at, found = question.name, [(table, verdict(table)) for table in tables(answer.measurements)]
    pictures, notes = _pictures(folder), _notes(folder)
    names = {name: one.label for name, one in METRICS.items()}
    html = render(
        PACKAGE,
        "section.html.j2",
        {
            "at": at,
            "run": answer.run,
            "found": found,
            "titles": TITLES,
            "metrics": names,
            "gallery": _gallery(pictures),
            "posteriors": [one for one in notes if "posterior" in one],
            "missing": answer.missing,
            "parts": {name: answer.run.data[name] for name in PARTS},
            "rest": other_facts({k: v for k, v in answer.run.data.items() if k not in PARTS}),
        },
    )
    rows = [_row(*one) for one in found]
    rows.sort(key=lambda row: (LEVELS[row.level], row.strength), reverse=True)
    return Section(
        name=at,
        title=question.title,
        html=html,
        rows=rows,
        lines=[Line(quoted(one.text), one.level, one.words, TITLES[t.ask]) for t, one in found],
        missing=answer.missing,
        warnings=list(answer.run.warnings),
        untried=_UNTRIED,
        nav=_nav(at, pictures=bool(pictures), posteriors=any("posterior" in one for one in notes)),
        style=files(PACKAGE).joinpath("section.css").read_text("utf-8"),
        private=bool(pictures),
    )


def _row(table: UpdateTable, one: FederationVerdict) -> Row:
    scored = one.level != "unknown"
    return Row(
        ask=table.ask,
        verdict=one.words,
        level=one.level,
        text=one.text,
        metric=METRICS[table.metric].label if scored else "",
        estimate=table.mean.estimate if scored else None,
        chance=table.mean.chance if scored else None,
        strength=one.strength,
        secret=table.mean.secret if table.ask == PROPERTY else "",
    )


def _pictures(folder: Path) -> dict[str, Tensor]:
    path = folder / PICTURES_FILE
    if not path.is_file():
        return {}
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read ({error}); run the command again") from error


def _notes(folder: Path) -> list[dict[str, Any]]:
    path = folder / NOTES_FILE
    try:
        rows = json.loads(read_text(path))
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged ({error}); run the command again") from error
    found: list[dict[str, Any]] = rows
    return found


def _gallery(pictures: dict[str, Tensor]) -> list[tuple[str, str, list[str]]]:
    """Return update, kind and PNG data addresses, in the order of rounds and clients."""
    rows = []
    for name in sorted(pictures, key=_order):
        number, _, rest = name.partition("/")
        client, _, kind = rest.rpartition("/")
        shown = [png_address(x) for x in pictures[name]]
        rows.append((f"round {number}, client {client}", kind, shown))
    return rows


def _order(name: str) -> tuple[int, str, str]:
    number, _, rest = name.partition("/")
    client, _, kind = rest.rpartition("/")
    return int(number), client, kind


def _nav(at: str, *, pictures: bool, posteriors: bool) -> Sequence[tuple[str, str]]:
    parts = (
        ("verdict", "Verdict", True),
        ("figures", "By round and client", True),
        ("named", "Property named", posteriors),
        ("records", "Records", pictures),
        ("data", "Data", True),
        ("settings", "Settings", True),
    )
    return [(f"{at}-{anchor}", text) for anchor, text, present in parts if present]
