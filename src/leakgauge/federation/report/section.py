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
from leakgauge.inversion.words import REMEDIES
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

    Raises:
        InputError: a file is damaged.
    """
    at, found = question.name, [(table, verdict(table)) for table in tables(answer.measurements)]
    pictures = _pictures(folder)
    posteriors = [one for one in _notes(folder) if "posterior" in one]
    html = render(
        PACKAGE,
        "section.html.j2",
        {
            "at": at,
            "run": answer.run,
            "found": found,
            "titles": TITLES,
            "metrics": {name: one.label for name, one in METRICS.items()},
            "gallery": _gallery(pictures),
            "posteriors": posteriors,
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
        nav=_nav(at, pictures=bool(pictures), posteriors=bool(posteriors)),
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
        metric=METRICS[table.lead.metric].label if scored else "",
        estimate=table.lead.estimate if scored else None,
        chance=table.lead.chance if scored else None,
        strength=one.strength,
        secret=table.mean.secret if table.ask == PROPERTY else "",
        remedy=REMEDIES.get(one.words, ""),
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
        rows: list[dict[str, Any]] = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path} is damaged ({error}); run the command again") from error
    return rows


def _gallery(pictures: dict[str, Tensor]) -> list[tuple[str, str, list[str]]]:
    """Return update, kind and PNG data addresses, in the order of rounds and clients."""
    rows = []
    for name, x in pictures.items():
        number, _, rest = name.partition("/")
        client, _, kind = rest.rpartition("/")
        rows.append((int(number), client, kind, [png_address(one) for one in x]))
    return [(f"round {at}, client {who}", kind, shown) for at, who, kind, shown in sorted(rows)]


def _nav(at: str, *, pictures: bool, posteriors: bool) -> Sequence[tuple[str, str]]:
    parts = {
        "verdict": "Verdict",
        "figures": "By round and client",
        **({"named": "Property named"} if posteriors else {}),
        **({"records": "Records"} if pictures else {}),
        "data": "Data",
        "settings": "Settings",
    }
    return [(f"{at}-{anchor}", text) for anchor, text in parts.items()]
