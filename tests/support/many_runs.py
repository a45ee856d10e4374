"""Write the folders of many finished audits without running them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leakgauge.catalog import questions
from leakgauge.core.files import write_text
from leakgauge.core.versions import versions
from leakgauge.results.measurements import Estimate, Measurement, write_measurements
from leakgauge.runs.page import render_folder
from leakgauge.runs.question import Answer
from leakgauge.runs.store import Description, Store, key_of
from support.made_runs import make_records, make_run

KEY = "inference"
START = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
"""Date of the first run of a history."""
WEEK = timedelta(days=7)
STARTS, FALLS, DEFENSES = 2.4, 0.02, ("none", "sign", "prune:rate=0.99")
"""Distance of the scores in the first run, its fall from run to run, and defenses in turn."""


def write_audit(
    folder: Path,
    records: Sequence[Measurement],
    *,
    when: datetime | None = START,
    data: str = "adult",
    seed: int = 0,
    report: str = "",
    unfinished: Sequence[str] = (),
    **described: Any,
) -> Path:
    """Write a finished audit of one question.

    Args:
        folder: a new folder.
        records: the figures.
        when: when it was finished; None for a run that does not say so.
        data: name of the data.
        seed: of the settings.
        report: the report's HTML; empty for none.
        unfinished: keys of further answers that are not there.
        described: further fields of the description.
    """
    settings = {"data": data, "ask": ["property"], "seed": seed, "batch_size": 16}
    identity = {"question": KEY, "settings": settings}
    named = {"name": data, "fingerprint": key_of({"data": data})}
    fields = {
        "command": "audit",
        "settings": {KEY: settings},
        "cells": (KEY, *unfinished),
        "data": named,
        "versions": versions(),
        "repeat": "leakgauge audit adult",
        "identities": {KEY: key_of(identity)},
    }
    store = Store.claim(folder, Description(**{**fields, **described}))
    measured = [replace(one, dataset=data) for one in records]
    store.keep(KEY, identity, Answer(make_run(data=named), measured))
    write_measurements(folder, measured)
    if when is not None:
        times = {KEY: {"seconds": 1.0, "finished": when.isoformat()}}
        write_text(folder / "timings.json", json.dumps(times))
    if report:
        write_text(folder / "report.html", report)
    return folder


def history(folder: Path, runs: int) -> list[Path]:
    """Write weekly audits of two tables with three defenses in turn, whose leak falls slowly.

    All have the report of the first, as drawing each takes long.
    """
    written: list[Path] = []
    report = ""
    for n in range(runs):
        shift, defense = STARTS - FALLS * n, DEFENSES[n % len(DEFENSES)]
        records = make_records(shift, 0.02, 1)
        if defense != "none":
            records += make_records(shift / 2, 0.02, 1, defense=defense)[:-1]
        path = folder / f"week-{n:03}"
        data = "adult" if n % 4 else "clinic"
        write_audit(path, records, when=START + n * WEEK, data=data, seed=n, report=report)
        report = report or render_folder(path, questions())
        if n == 0:
            write_text(path / "report.html", report)
        written.append(path)
    return written


def at(records: Sequence[Measurement], value: float, half: float) -> list[Measurement]:
    """Return records whose AUROC over all rounds has this value and interval."""
    estimate = Estimate(value, value - half, value + half, 2000)
    return [replace(one, estimate=estimate) if one.metric == "auroc" else one for one in records]
