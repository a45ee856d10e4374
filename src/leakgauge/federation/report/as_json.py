"""The figures as plain values, for ``--json``."""

from pathlib import Path
from typing import Any

from leakgauge.federation.report.rows import tables
from leakgauge.federation.report.wording import verdict
from leakgauge.federation.words import plain_word
from leakgauge.results.measurements import Measurement
from leakgauge.runs.question import Answer


def as_json(answer: Answer, folder: Path) -> dict[str, Any]:
    """Return each question's verdict, mean and figures by round and client."""
    found = {}
    for table in tables(answer.measurements):
        one = verdict(table)
        found[plain_word(table.ask)] = {
            "verdict": one.words,
            "level": one.level,
            "metric": table.metric,
            **_figure(table.mean),
            **{name: _figure(each) for name, each in table.extra.items()},
            "updates": [
                {"round": number, "client": client, **_figure(cell)}
                for (number, client), cell in table.cells.items()
            ],
        }
    return {
        **found,
        "notes": list(answer.run.notes),
        "warnings": list(answer.run.warnings),
        "missing": list(answer.missing),
    }


def _figure(one: Measurement) -> dict[str, float]:
    return {
        "value": one.estimate.value,
        "low": one.estimate.low,
        "high": one.estimate.high,
        "chance": one.chance,
    }
