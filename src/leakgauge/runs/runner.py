"""Plays the cells of a grid and keeps their answers."""

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.threads import one_thread
from leakgauge.core.versions import versions
from leakgauge.results.measurements import SECONDS, Measurement
from leakgauge.runs.executors import TWICE, spread
from leakgauge.runs.grid import Grid
from leakgauge.runs.question import Question, Silent
from leakgauge.runs.sources import source_of, unchanged
from leakgauge.runs.spec import Spec, own_code, plain
from leakgauge.runs.store import GRID, Description, Store, key_of
from leakgauge.runs.timings import keep_timing, read_timings
from leakgauge.runs.work import Say, in_silence

Progress = Callable[[int, int, float | None], None]
"""Called with how many cells are done, of how many, and the seconds left, where they are known."""


@dataclass(frozen=True)
class Job:
    """A cell with all that its figures depend on.

    Attributes:
        question: that it asks.
        spec: with everything filled in that the data decide.
        data: the name of the data, for the measurements.
        fingerprint: of their content.
    """

    question: Question
    spec: Spec
    data: str
    fingerprint: str

    @property
    def identity(self) -> dict[str, Any]:
        """All that the figures depend on, as plain values; not where the data lie."""
        code = own_code(self.spec)
        return {
            "settings": {**plain(self.spec), "data": self.data},
            "fingerprint": self.fingerprint,
            "versions": versions(),
            **({"code": code} if code else {}),
        }

    @functools.cached_property
    def key(self) -> str:
        """The cell's name in a store."""
        return key_of(self.identity)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended.

    Attributes:
        spec: of the cell.
        key: where its answer stands; empty where its data could not be read.
        seconds: that it took.
        times: its figures of time, which the store keeps apart.
        refusal: why it has no answer; None where it has one.
        notes: on what was damaged and made anew.
    """

    spec: Spec
    key: str
    seconds: float = 0.0
    times: tuple[Measurement, ...] = ()
    refusal: str | None = None
    notes: tuple[str, ...] = ()


def run_grid(
    grid: Grid,
    out: Path,
    *,
    workers: int = 1,
    progress: Progress = lambda done, of, left: None,
    say: Say = in_silence,
) -> list[Outcome]:
    """Play what the folder does not hold yet; each cell on one thread.

    The store is the same however often the run was killed and however many workers there are.

    Args:
        grid: unfolded.
        out: the grid's folder.
        workers: processes.
        progress: called at the start and after each cell.
        say: gets a note on each file that was damaged and is made anew.

    Returns:
        The cells that were refused; the others stand in the store.

    Raises:
        InputError: the folder cannot be used.
    """
    by_cell, refused = _resolved(grid)
    jobs = {job.key: job for job in by_cell.values()}
    store = Store.claim(out, _described(grid, by_cell), say)
    done = [key for key, job in jobs.items() if store.kept(key, job.identity, say) is not None]
    for key in done:
        store.forget(key)
    todo = {key: job for key, job in jobs.items() if key not in done}

    def report() -> None:
        took = {key: one.seconds for key, one in read_timings(out).items()}
        left = seconds_left(took, jobs, todo, workers=workers)
        progress(len(jobs) - len(todo), len(jobs), left)

    left = list(todo.values())

    def given_up(number: int) -> Outcome:
        return Outcome(left[number].spec, left[number].key, refusal=TWICE)

    report()
    plays = [partial(play, job, out) for job in left]
    for outcome in spread(plays, workers=workers, given_up=given_up):
        del todo[outcome.key]
        for note in outcome.notes:
            say(note)
        if outcome.refusal is None:
            keep_timing(out, outcome.key, outcome.seconds, outcome.times)
        else:
            refused.append(outcome)
        report()
    return refused


def play(job: Job, out: Path) -> Outcome:
    """Play one cell and keep its answer; steps that a kill left finished are not done again."""
    began, key, store = time.perf_counter(), job.key, Store(out)
    refusal, notes, times = None, list[str](), list[Measurement]()
    with store.alone(key):
        if store.kept(key, job.identity, notes.append) is None:
            try:
                source = unchanged(job.spec, job.fingerprint)
                with one_thread():
                    work = store.work(key, notes.append)
                    answer = job.question.run(job.spec, source, work, Silent(), workers=1)
                if answer.stopped:  # a cell is whole or not there; its checkpoints stay
                    raise KeyboardInterrupt
                store.keep(key, job.identity, answer, timed=False)
                times = [one for one in answer.measurements if one.metric == SECONDS]
            except InputError as error:
                store.forget(key)
                refusal = str(error)
    seconds = time.perf_counter() - began
    return Outcome(job.spec, key, seconds, tuple(times), refusal, tuple(notes))


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
            spec = cell.resolve(source)
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
