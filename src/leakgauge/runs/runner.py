"""Runs the cells of a grid and keeps their answers."""

import contextlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.runs.cell import CellJob, CellOutcome, run_cell
from leakgauge.runs.executors.executor import Executor
from leakgauge.runs.executors.processes import Processes
from leakgauge.runs.grid import Grid
from leakgauge.runs.remote import RemoteResult, keep_result, remote_jobs
from leakgauge.runs.room import doubted_claims
from leakgauge.runs.sources import forget, source_of
from leakgauge.runs.spec import Spec, plain
from leakgauge.runs.store import GRID, Description, Store
from leakgauge.runs.timings import keep_timing, read_timings
from leakgauge.runs.work import Say, in_silence

GridProgress = Callable[[int, int, float | None], None]
"""Called with the numbers of finished and of all cells, and the seconds left; None if unknown."""


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: GridProgress = lambda done, of, left: None,
    say: Say = in_silence,
) -> list[CellOutcome]:
    """Run the cells that the folder does not hold yet, each on one thread.

    The store is the same however often the run was killed, wherever the cells run and however many
    workers there are.

    Args:
        grid: the grid with its cells.
        out: the grid's folder.
        workers: processes, if no executor is given.
        executor: runs the cells.
        progress: called at the start and after each cell.
        say: gets a note about each file that was damaged and is made anew.

    Returns:
        The cells that were refused; the others are in the store.

    Raises:
        InputError: the folder cannot be used.
    """
    executor = executor or Processes(workers)
    by_cell, refused = _resolved(grid)
    for text in dict.fromkeys(one for job in by_cell.values() for one in doubted_claims(job.spec)):
        say(text)
    jobs = {job.key: job for job in by_cell.values()}
    store = Store.claim(out, _described(grid, by_cell), say)
    done = [key for key, job in jobs.items() if store.kept(key, job.identity, say) is not None]
    for key in done:
        store.forget(key)
    todo = {key: job for key, job in jobs.items() if key not in done}

    def report() -> None:
        took = {key: one.seconds for key, one in read_timings(out).items()}
        left = seconds_left(took, jobs, todo, workers=executor.workers)
        progress(len(jobs) - len(todo), len(jobs), left)

    report()
    with contextlib.closing(_outcomes(executor, list(todo.values()), store, say)) as outcomes:
        for outcome in outcomes:
            del todo[outcome.key]
            for note in outcome.notes:
                say(note)
            if outcome.refusal is None:
                keep_timing(out, outcome.key, outcome.seconds, outcome.times, outcome.worker)
            else:
                refused.append(outcome)
            report()
    return refused


def _outcomes(
    executor: Executor, jobs: Sequence[CellJob], store: Store, say: Say
) -> Generator[CellOutcome, None, None]:
    """Run cells with the executor; each is in the store when its outcome is yielded."""

    def given_up(number: int) -> CellOutcome:
        return CellOutcome(jobs[number].spec, jobs[number].key, refusal=executor.lost)

    if not executor.apart:
        runs = [partial(run_cell, job, store.path) for job in jobs]
        yield from executor.spread(runs, given_up=given_up, say=say)
        return
    by_key = {job.key: job for job in jobs}
    results = executor.spread(
        remote_jobs(jobs, memory=executor.memory),
        given_up=lambda number: RemoteResult("", given_up(number)),
        say=say,
    )
    for result in results:
        yield keep_result(result, by_key, store, say)


def seconds_left(
    took: Mapping[str, float],
    jobs: Mapping[str, CellJob],
    todo: Mapping[str, CellJob],
    *,
    workers: int,
) -> float | None:
    """Return the expected seconds for the cells of ``todo``; None without finished cells.

    A cell is expected to take as long as the finished cells with the most settings in common.
    """
    finished = [(plain(jobs[key].spec), seconds) for key, seconds in took.items() if key in jobs]
    if not finished:
        return None
    return sum(_expected(plain(job.spec), finished) for job in todo.values()) / workers


def _expected(
    settings: Mapping[str, Any], finished: Sequence[tuple[Mapping[str, Any], float]]
) -> float:
    alike = [
        (sum(value == other[name] for name, value in settings.items() if name != "seed"), seconds)
        for other, seconds in finished
    ]
    most = max(common for common, _ in alike)
    nearest = [seconds for common, seconds in alike if common == most]
    return sum(nearest) / len(nearest)


def _resolved(grid: Grid) -> tuple[dict[str, CellJob], list[CellOutcome]]:
    """Return the job of each cell, and the cells whose data cannot be used."""
    jobs: dict[str, CellJob] = {}
    refused: list[CellOutcome] = []
    forget()
    for cell in grid.cells:
        try:
            source = source_of(cell)
            prepared = grid.question.prepare(cell, source)
        except InputError as error:
            refused.append(CellOutcome(cell, "", refusal=str(error)))
        else:
            facts = (source.name, source.fingerprint, prepared.inputs())
            jobs[_text(cell)] = CellJob(grid.question, prepared.spec, *facts)
    return jobs, refused


def _described(grid: Grid, jobs: Mapping[str, CellJob]) -> Description:
    """Return the description for ``run.yaml``, with the cells of each grid and paper figure."""

    def keys(cells: Sequence[Spec]) -> list[str]:
        known = (jobs.get(_text(cell)) for cell in cells)
        return list(dict.fromkeys(job.key for job in known if job is not None))

    settings = {
        "question": grid.question.name,
        "name": grid.name,
        "about": grid.about,
        "size": grid.size,
        "asked": len(grid.cells),
        "grids": [keys(cells) for cells in grid.grids],
        "paper": [
            {**asdict(row), "cells": keys([cell for cell in grid.cells if row.about(cell)])}
            for row in grid.paper
        ],
    }
    return Description(GRID, settings, tuple(keys(grid.cells)))


def _text(cell: Spec) -> str:
    return json.dumps(plain(cell), sort_keys=True)
