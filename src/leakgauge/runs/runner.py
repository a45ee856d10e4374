"""Plays the cells of a grid and keeps what they find."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.threads import one_thread
from leakgauge.guarantee import run as guarantee
from leakgauge.guarantee.run import GuaranteeCell
from leakgauge.inference.run.resumable import run_stages
from leakgauge.inversion.metrics.lpips import default_lpips
from leakgauge.inversion.run import scoring
from leakgauge.inversion.run.attempt import rebuild
from leakgauge.inversion.run.scenario import scenario_of
from leakgauge.inversion.run.spec import InversionCell
from leakgauge.results.measurements import Measurement, Run
from leakgauge.runs.cell import AnyCell, plain
from leakgauge.runs.cellstore import CellStore
from leakgauge.runs.executors import spread
from leakgauge.runs.grid import Grid
from leakgauge.runs.job import Job, job_of, prepared, source_of
from leakgauge.runs.store import RunFolder

Progress = Callable[[int, int, float | None], None]
"""Called with how many cells are done, of how many, and the seconds left, where they are known."""


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        cell: which.
        key: where its records stand; empty where its data could not be read.
        seconds: what it took.
        refusal: why it could not be played; None where it was.
    """

    cell: AnyCell
    key: str
    seconds: float = 0.0
    refusal: str | None = None


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    progress: Progress = lambda done, of, left: None,
) -> list[Outcome]:
    """Play what the folder does not hold yet; each cell on one thread.

    The store is the same however often the run was killed and however many workers there are.

    Args:
        grid: from ``read_grid``.
        out: the grid's folder.
        workers: processes.
        progress: told at the start and after each cell.

    Returns:
        The cells that were refused; the others stand in the store.

    Raises:
        InputError: the folder cannot be used.
    """
    by_cell, refused = _resolved(grid)
    jobs = {job.key: job for job in by_cell.values()}
    store = CellStore.claim(out, _described(grid, by_cell))
    done = [key for key in jobs if store.has(key)]
    for key in done:
        store.forget(key)
    todo = {key: job for key, job in jobs.items() if key not in done}

    def tell() -> None:
        left = seconds_left(store.seconds, jobs, todo, workers=workers)
        progress(len(jobs) - len(todo), len(jobs), left)

    tell()
    for outcome in spread([partial(play, job, out) for job in todo.values()], workers=workers):
        del todo[outcome.key]
        if outcome.refusal is None:
            store.keep_seconds(outcome.key, outcome.seconds)
        else:
            refused.append(outcome)
        tell()
    return refused


def play(job: Job, out: Path) -> Outcome:
    """Play one cell and keep its records; rounds that a kill left finished are not done again."""
    began, key, store = time.perf_counter(), job.key, CellStore(out)
    refusal = None
    with store.alone(key):
        if not store.has(key):
            try:
                records = _records(job, store)
                store.keep(key, job.identity, records)
            except InputError as error:
                store.forget(key)
                refusal = str(error)
    return Outcome(job.cell, key, time.perf_counter() - began, refusal)


def _records(job: Job, store: CellStore) -> list[Measurement]:
    cell, source = job.cell, source_of(job)
    with one_thread():
        if isinstance(cell, GuaranteeCell):
            found = guarantee.audited(guarantee.checked_table(source, cell), cell)
            return guarantee.records_of(cell, source.name, *found)
        if isinstance(cell, InversionCell):
            rebuilt = rebuild(scenario_of(source, cell), cell, lpips=default_lpips())
            return scoring.records_of(cell, source.name, rebuilt)
        ready = prepared(cell, source)
        folder = _folder(store, job.key, ready.run)
        return run_stages(folder, ready.stages, dataset=ready.dataset, label=ready.label, workers=1)


def seconds_left(
    took: Mapping[str, float], jobs: Mapping[str, Job], todo: Mapping[str, Job], *, workers: int
) -> float | None:
    """How long the cells of ``todo`` will take, judged by those that were played.

    Each is taken to last as long as the finished cells that have most settings in common with it.
    None where nothing was played yet.
    """
    played = [(plain(jobs[key].cell), seconds) for key, seconds in took.items() if key in jobs]
    if not played:
        return None
    return sum(_expected(plain(job.cell), played) for job in todo.values()) / workers


def _expected(
    wanted: Mapping[str, Any], played: Sequence[tuple[Mapping[str, Any], float]]
) -> float:
    alike = [
        (sum(value == other[name] for name, value in wanted.items() if name != "seed"), seconds)
        for other, seconds in played
    ]
    most = max(common for common, _ in alike)
    found = [seconds for common, seconds in alike if common == most]
    return sum(found) / len(found)


def _resolved(grid: Grid) -> tuple[dict[str, Job], list[Outcome]]:
    """The job of each cell, and the cells whose data cannot be read."""
    jobs: dict[str, Job] = {}
    refused: list[Outcome] = []
    for cell in grid.cells:
        try:
            jobs[_text(cell)] = job_of(cell)
        except InputError as error:
            refused.append(Outcome(cell, "", refusal=str(error)))
    return jobs, refused


def _described(grid: Grid, jobs: Mapping[str, Job]) -> dict[str, Any]:
    """What ``grid.yaml`` says: which cells each grid and each figure of the paper is about."""

    def keys(cells: Sequence[AnyCell]) -> list[str]:
        found = (jobs.get(_text(cell)) for cell in cells)
        return list(dict.fromkeys(job.key for job in found if job is not None))

    return {
        "name": grid.name,
        "about": grid.about,
        "size": grid.size,
        "asked": len(grid.cells),
        "cells": keys(grid.cells),
        "grids": [keys(cells) for cells in grid.grids],
        "paper": [
            {**asdict(row), "cells": keys([cell for cell in grid.cells if row.about(cell)])}
            for row in grid.paper
        ],
    }


def _text(cell: AnyCell) -> str:
    return json.dumps(plain(cell), sort_keys=True)


def _folder(store: CellStore, key: str, run: Run) -> RunFolder:
    """The cell's working folder; what other code of the same version left there is removed."""
    try:
        return RunFolder.claim(store.working(key), run)
    except InputError:
        store.forget(key)
        return RunFolder.claim(store.working(key), run)
