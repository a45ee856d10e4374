"""Write the folders of many finished audits without running them."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from leakgauge.core.files import write_text
from leakgauge.core.versions import versions
from leakgauge.results.measurements import Measurement, write_measurements
from leakgauge.runs.question import Answer
from leakgauge.runs.store import GRID, Description, Store, key_of
from support.made_runs import make_records, make_run, render

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
    report: str | None = None,
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
        report: the report's HTML; empty for none, None for that of some run.
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
    html = some_report() if report is None else report
    if html:
        write_text(folder / "report.html", html)
    return folder


@functools.cache
def some_report() -> str:
    """Return the report of some run; drawing one for each takes long."""
    return render(make_run(), make_records(rounds=1))


def history(folder: Path, runs: int) -> list[Path]:
    """Write weekly audits of two tables with three defenses in turn, whose leak falls slowly."""
    written: list[Path] = []
    for n in range(runs):
        shift, defense = STARTS - FALLS * n, DEFENSES[n % len(DEFENSES)]
        records = make_records(shift, 0.02, 1)
        if defense != "none":
            records += make_records(shift / 2, 0.02, 1, defense=defense)[:-1]
        path, data = folder / f"week-{n:03}", "adult" if n % 4 else "clinic"
        written.append(write_audit(path, records, when=START + n * WEEK, data=data, seed=n))
    return written


def write_grid(folder: Path, shifts: Sequence[float] = (2.4, 1.8), seeds: int = 2) -> Path:
    """Write a finished grid: a cell for each distance of the scores and each seed.

    The setting ``batch_size`` is 1, 2, ... in the order of the distances.
    """
    cells = {}
    for size, shift in enumerate(shifts, start=1):
        for seed in range(seeds):
            settings = {"data": "adult", "ask": "property", "batch_size": size, "seed": seed}
            cells[key_of(settings)] = (settings, make_records(shift, 0.02, 1))
    described = {"name": "sizes", "about": "", "size": "small", "question": KEY}
    described |= {"asked": len(cells) + 1, "grids": [list(cells)], "paper": []}
    store = Store.claim(folder, Description(GRID, described, tuple(cells)))
    for key, (settings, records) in cells.items():
        store.keep(key, {"settings": settings}, Answer(make_run(), records))
    return folder
