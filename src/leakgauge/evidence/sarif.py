"""SARIF 2.1.0 of a run: one rule a question, one result for each leak and each rule that fails."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from leakgauge.core.versions import versions
from leakgauge.evidence.cases import Case, cases_of, sentence_of, unmatched
from leakgauge.evidence.gate import NOT_MEASURED, Gate
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.report.section import Level

PROGRAM = "leakgauge"
VERSION = "2.1.0"
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "leakgauge/v1"
SEVERITY: Mapping[Level, str] = {
    "strong": "warning", "clear": "warning", "weak": "note", "inconclusive": "note", "below": "note"
}  # fmt: skip
"""Severity of a verdict without a failed rule; verdicts without a leak are left out."""


def as_sarif(run: RunParts, gate: Gate) -> str:
    """Return SARIF 2.1.0 of a run.

    A rule or a promise that fails is an error. A verdict of the report that no rule turned into
    an error is a warning (a strong or clear leak) or a note (a weak leak, or an inconclusive or
    invalid test). What was refused or not measured is a notification of the tool.
    """
    names = list(dict.fromkeys(_rule_id(part) for part in run.parts))
    missing = [(part, one) for part in run.parts for one in part.missing]
    notices = [f"{part.question.name}: {text}" for part, text in missing]
    notices += [f"{rule}: {one.why}" for rule, one in unmatched(gate)]
    log = {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {"driver": _driver(run, names)},
                "invocations": [
                    {
                        "executionSuccessful": not notices,
                        "toolExecutionNotifications": [
                            {"level": "error", "message": {"text": text}}
                            for text in dict.fromkeys(notices)
                        ],
                    }
                ],
                "results": list(_results(run, gate, names)),
                "columnKind": "unicodeCodePoints",
            }
        ],
    }
    return json.dumps(log, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _driver(run: RunParts, names: list[str]) -> dict[str, Any]:
    titles = {_rule_id(part): part.question for part in run.parts}
    return {
        "name": PROGRAM,
        "version": versions()[PROGRAM],
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": titles[name].title},
                "fullDescription": {"text": "; ".join(titles[name].asks.values())},
                "help": {"text": "The report of the run has the figures and what they mean."},
            }
            for name in names
        ],
    }


def _rule_id(part: RunPart) -> str:
    """Return the question's name without the number of a further secret."""
    first, _, number = part.question.name.rpartition("-")
    return first if first and number.isdigit() else part.question.name


def _results(run: RunParts, gate: Gate, names: list[str]) -> Iterator[dict[str, Any]]:
    said: set[tuple[str, str]] = set()
    for case in cases_of(run, gate):
        for text, what in _failures(case):
            said.add((case.part.key, case.ask))
            failed = (case.ask, case.secret, case.defense, what)
            yield _result(run, case.part, names, "error", text, failed)
    for part in run.parts:
        for row in part.rows:
            severity = SEVERITY.get(row.level)
            if severity is not None and (part.key, row.ask) not in said:
                figure = f" ({row.figure})" if row.figure else ""
                text = f"{row.ask}: {row.verdict}{figure}. {row.text}".replace("`", "'")
                place = (row.ask, row.secret, row.test)
                yield _result(run, part, names, severity, text, place)


def _failures(case: Case) -> Iterator[tuple[str, str]]:
    """Yield what fails in a case: the message, and the failed rule."""
    for rule, one in case.failed:
        if one.outcome == NOT_MEASURED:
            continue
        yield sentence_of(rule, one), rule
    for broken in case.broken:
        yield f"{case.name}: {broken.why}.", "promise"


def _result(
    run: RunParts, part: RunPart, names: list[str], level: str, text: str, place: tuple[str, ...]
) -> dict[str, Any]:
    rule = _rule_id(part)
    words = [rule, *(word for word in place[:3] if word)]
    return {
        "ruleId": rule,
        "ruleIndex": names.index(rule),
        "level": level,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(run, part)},
                    "region": {"startLine": 1},
                },
                "logicalLocations": [
                    {"name": words[-1], "fullyQualifiedName": "/".join(words), "kind": "resource"}
                ],
            }
        ],
        "partialFingerprints": {FINGERPRINT: _fingerprint(run, part, place)},
    }


def _fingerprint(run: RunParts, part: RunPart, place: tuple[str, ...]) -> str:
    """Return the SHA-256 of question, data and settings, without any figure or path of the data."""
    settings = {key: one for key, one in part.settings.items() if key not in ("data", "table")}
    identity = [_rule_id(part), run.name, part.cell, list(place), settings]
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()


def _uri(run: RunParts, part: RunPart) -> str:
    """Return the file of the data or the task, if it is below the working folder; else the page.

    A code server shows files of its repository alone, so the path is relative.
    """
    task = str(part.settings.get("task") or "").partition(":")[0]
    module = Path(*task.split(".")).with_suffix(".py") if task else None
    given = [part.settings.get(name) for name in ("data", "table")]
    files = [Path(str(one)) for one in (*given, module) if one]
    here = Path.cwd()
    for file in (*(one for one in files if one.is_file()), run.report):
        whole = Path(os.path.realpath(file))
        if whole.is_relative_to(here.resolve()):
            return quote(whole.relative_to(here.resolve()).as_posix())
    return quote(run.report.name)
