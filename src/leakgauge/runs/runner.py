"""Plays the cells of a grid and keeps their answers."""

import contextlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.runs.away import Parcel, orders, received
from leakgauge.runs.cell import Job, Outcome, play
from leakgauge.runs.executors.executor import Executor
from leakgauge.runs.executors.processes import Processes
from leakgauge.runs.grid import Grid
from leakgauge.runs.sources import source_of
from leakgauge.runs.spec import Spec, plain
from leakgauge.runs.store import GRID, Description, Store
from leakgauge.runs.timings import keep_timing, read_timings
from leakgauge.runs.work import Say, in_silence

Progress = Callable[[int, int, float | None], None]
"""Called with how many cells are done, of how many, and the seconds left, where they are known."""


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    progress: Progress = lambda done, of, left: None,
    say: Say = in_silence,
) -> list[Outcome]:
    """Play what the folder does not hold yet; each cell on one thread.

    The store is the same however often the run was killed, wherever the cells are played and
    however many workers there are.

    Args:
        grid: unfolded.
        out: the grid's folder.
        workers: processes, where no executor is given.
        executor: plays the cells.
        progress: called at the start and after each cell.
        say: gets a note on each file that was damaged and is made anew.

    Returns:
        The cells that were refused; the others stand in the store.

    Raises:
        InputError: the folder cannot be used.
    """
    executor = executor or Processes(workers)
    by_cell, refused = _resolved(grid)
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
    with contextlib.closing(_played(executor, list(todo.values()), store, say)) as played:
        for outcome in played:
            del todo[outcome.key]
            for note in outcome.notes:
                say(note)
            if outcome.refusal is None:
                keep_timing(out, outcome.key, outcome.seconds, outcome.times, outcome.worker)
            else:
                refused.append(outcome)
            report()
    return refused


def _played(
    executor: Executor, jobs: Sequence[Job], store: Store, say: Say
) -> Generator[Outcome, None, None]:
    """Play cells where the executor plays them; each is in the store when it is yielded."""

    def given_up(number: int) -> Outcome:
        return Outcome(jobs[number].spec, jobs[number].key, refusal=executor.lost)

    if not executor.apart:
        plays = [partial(play, job, store.path) for job in jobs]
        yield from executor.spread(plays, given_up=given_up, say=say)
        return
    by_key = {job.key: job for job in jobs}
    parcels = executor.spread(
        orders(jobs, memory=executor.memory),
        given_up=lambda number: Parcel("", given_up(number)),
        say=say,
    )
    for parcel in parcels:
        yield received(parcel, by_key, store, say)


def seconds_left(
    took: Mapping[str, float], jobs: Mapping[str, Job], todo: Mapping[str, Job], *, workers: int
) -> float | None:
    """Return how long the cells of ``todo`` will take, judged by those that were played.

    Each is taken to last as long as the finished cells that have most settings in common with it.
    None where nothing was played yet.
    """
    played = [(plain(jobs[key].spec), seconds) for key, seconds in took.items() if key in jobs]
    if not played:
        return None
    return sum(_expected(plain(job.spec), played) for job in todo.values()) / workers


def _expected(
    wanted: Mapping[str, Any], played: Sequence[tuple[Mapping[str, Any], float]]
) -> float:
    alike = [
        (sum(value == other[name] for name, value in wanted.items() if name != "seed"), seconds)
        for other, seconds in played
    ]
    most = max(common for common, _ in alike)
    nearest = [seconds for common, seconds in alike if common == most]
    return sum(nearest) / len(nearest)


def _resolved(grid: Grid) -> tuple[dict[str, Job], list[Outcome]]:
    """The job of each cell, and the cells whose data cannot be used."""
    jobs: dict[str, Job] = {}
    refused: list[Outcome] = []
    for cell in grid.cells:
        try:
            source = source_of(cell)
            spec = grid.question.prepare(cell, source).spec
        except InputError as error:
            refused.append(Outcome(cell, "", refusal=str(error)))
        else:
            jobs[_text(cell)] = Job(grid.question, spec, source.name, source.fingerprint)
    return jobs, refused


def _described(grid: Grid, jobs: Mapping[str, Job]) -> Description:
    """What ``run.yaml`` says: which cells each grid and each figure of the paper is about."""

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
