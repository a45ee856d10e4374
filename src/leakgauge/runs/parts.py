"""Parts of a run that survive a kill: each is read back, or else made, kept and counted."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from joblib import cpu_count
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.memory import fitting
from leakgauge.results.measurements import Measurement, Run
from leakgauge.runs.executors.processes import spread
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder, digest_of

StageState = Mapping[str, Tensor]
Kept = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]
"""A part: arrays by name, and plain values."""

Name = TypeVar("Name")
Made = TypeVar("Made")


def begin(folder: WorkFolder, run: Run, progress: Progress, *, identity: Run) -> None:
    """Drop the checkpoints of another run, and report the notes and warnings of this one.

    Args:
        folder: keeps the parts.
        run: the description of the run.
        progress: gets the notes and the warnings.
        identity: what the parts depend on.
    """
    folder.guard(identity)
    for note in run.notes:
        progress.note(note)
    for warning in run.warnings:
        progress.warn(warning)


def once(folder: WorkFolder, name: str, make: Callable[[], Kept], *, after: str = "") -> Kept:
    """Return a part from the folder; make and keep it where the folder lacks it.

    Args:
        folder: keeps the part.
        name: name of the part.
        make: makes it.
        after: digest of what it builds on.
    """
    kept: Kept | None = folder.arrays(name, after=after)
    if kept is None:
        kept = make()
        folder.keep_arrays(name, *kept, after=after)
    return kept


def once_tensors(
    folder: WorkFolder, name: str, make: Callable[[], StageState], *, like: StageState
) -> StageState:
    """Return tensors from the folder; make and keep them where the folder lacks them.

    Args:
        folder: keeps the tensors.
        name: name of the part.
        make: makes them.
        like: tensors of the same names, on the devices to use.
    """
    kept: StageState | None = folder.tensors(name, like=like)
    if kept is None:
        kept = make()
        folder.keep_tensors(name, kept)
    return kept


def each_once(
    folder: WorkFolder,
    after: Mapping[str, str],
    jobs: Callable[[Collection[str]], Mapping[str, Callable[[], Kept | str]]],
    count: Callable[[int, int], None],
    *,
    workers: int | None,
    memory: int = 0,
) -> tuple[dict[str, Kept], dict[str, str]]:
    """Return independent parts; those that the folder lacks are made in several processes.

    Args:
        folder: keeps the parts.
        after: for each part, the digest of what it builds on.
        jobs: returns what makes each of the named parts, or says why it cannot.
        count: called with the numbers of finished and of all parts.
        workers: processes; None chooses a number from the time of the first part.
        memory: bytes that a part needs in addition to its process; 0 if unknown.

    Returns:
        The parts in the order of ``after``, and for each other part why it was not made.
    """
    found = {name: folder.arrays(name, after=one) for name, one in after.items()}
    done: dict[str, Kept] = {name: kept for name, kept in found.items() if kept is not None}
    refused: dict[str, str] = {}
    left = [name for name in after if name not in done]
    count(len(done), len(after))
    made = [partial(_named, name, job) for name, job in (jobs(left) if left else {}).items()]
    for name, kept in spread(made, count=len(made), workers=workers, memory=memory):
        if isinstance(kept, str):
            refused[name] = kept
        else:
            folder.keep_arrays(name, *kept, after=after[name])
            done[name] = kept
        count(len(done) + len(refused), len(after))
    return {name: done[name] for name in after if name in done}, refused


def _named(name: Name, job: Callable[[], Made]) -> tuple[Name, Made]:
    return name, job()


class Stage(Protocol):
    """One part of a question, with a step at each of its states.

    Attributes:
        name: for users and for folders.
        steps: the number of states with a step; the last state comes after.
        memory: bytes that a step needs at its peak, in addition to the process itself.
    """

    @property
    def name(self) -> str:
        """The name of the stage."""
        ...

    @property
    def steps(self) -> int:
        """The number of steps."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that a step needs."""
        ...

    @property
    def first(self) -> StageState:
        """The first state; all others have its names and devices."""
        ...

    def states(self, kept: Sequence[StageState]) -> Iterator[StageState]:
        """Yield the states after the ``kept`` ones, up to ``steps + 1`` in all."""
        ...

    def step(self, number: int, state: StageState) -> Kept:
        """Run step ``number``, which counts from 1; it depends on its arguments alone."""
        ...

    def close(self, states: Sequence[StageState], progress: Callable[[int], None]) -> Kept | None:
        """Run what needs all states at once; None if nothing does."""
        ...

    def judge(
        self, steps: Sequence[Kept], closing: Kept | None, final: StageState
    ) -> Sequence[Measurement]:
        """Turn what the steps left into measurements."""
        ...


def run_stages(
    folder: WorkFolder,
    stages: Sequence[Stage],
    *,
    workers: int | None,
    progress: Progress,
) -> tuple[list[Measurement], list[str]]:
    """Run and score every stage; finished steps are read back from the folder.

    The measurements are the same however often the run was interrupted and however many workers
    there are.

    Args:
        folder: keeps states and steps.
        stages: to run, one after the other.
        workers: processes; None chooses a number from the time of the first step.
        progress: gets what is done.

    Returns:
        The measurements, and for each stage that could not be completed its name and the reason.

    Raises:
        InputError: no stage could be completed.
    """
    measurements: list[Measurement] = []
    missing: list[str] = []
    for number, stage in enumerate(stages, start=1):
        try:
            measurements += _run_stage(folder, stage, workers, progress)
        except InputError as error:
            if number == len(stages) and not measurements:
                raise
            missing.append(f"{stage.name}: {error}")
    return measurements, missing


def _run_stage(
    folder: WorkFolder, stage: Stage, workers: int | None, progress: Progress
) -> Sequence[Measurement]:
    """Run and score a stage: processes run its steps while this one makes the next states."""
    starts: list[StageState] = []
    after: dict[int, str] = {}
    done: dict[int, Kept] = {}
    last: list[tuple[StageState, Kept | None]] = []

    def count() -> None:
        progress.step(f"{stage.name}: attacking", len(done), stage.steps)

    def left() -> Iterator[Callable[[], tuple[int, Kept]]]:
        """Make the states; yield the step at each, unless the folder has it."""
        states = _states(folder, stage, progress)
        for number, state in enumerate(states if _fits_beside(stage) else [*states], start=1):
            if number > stage.steps:
                last.append((state, _closing(folder, stage, starts, progress)))
                return
            starts.append(state)
            after[number] = digest_of(state)
            kept = folder.arrays(_step_name(stage, number), after=after[number])
            if kept is None:
                yield partial(_named, number, partial(stage.step, number, state))
            else:
                done[number] = kept
                count()

    for number, kept in spread(left(), count=stage.steps, workers=workers, memory=stage.memory):
        folder.keep_arrays(_step_name(stage, number), *kept, after=after[number])
        done[number] = kept
        count()
    ((final, closing),) = last
    return stage.judge([done[number] for number in sorted(done)], closing, final)


def _fits_beside(stage: Stage) -> bool:
    """Return whether this process can make states while others run steps, one on each core."""
    on_cpu = all(value.device.type == "cpu" for value in stage.first.values())
    return on_cpu and fitting(cpu_count() + 1, stage.memory) > cpu_count()


def _step_name(stage: Stage, number: int) -> str:
    return f"{stage.name}/step-{number:04d}"


def _states(folder: WorkFolder, stage: Stage, progress: Progress) -> Iterator[StageState]:
    """Yield all states; those that the folder lacks are made and kept."""
    name, total = stage.name, stage.steps
    kept: list[StageState] = []
    while len(kept) <= total:
        after = _digest(kept[-1:])
        old = folder.tensors(f"{name}/state-{len(kept) + 1:04d}", like=stage.first, after=after)
        if old is None:
            break
        kept.append(old)
    progress.step(f"{name}: training", max(0, len(kept) - 1), total)
    yield from kept
    for state in stage.states(tuple(kept)):
        after = _digest(kept[-1:])
        kept.append(state)
        folder.keep_tensors(f"{name}/state-{len(kept):04d}", state, after=after)
        progress.step(f"{name}: training", len(kept) - 1, total)
        yield state


def _closing(
    folder: WorkFolder, stage: Stage, starts: Sequence[StageState], progress: Progress
) -> Kept | None:
    after = _digest(starts)
    kept: Kept | None = folder.arrays(f"{stage.name}/closing", after=after)
    if kept is not None:
        return kept
    said = partial(progress.step, f"{stage.name}: weighing all rounds", of=len(starts))
    kept = stage.close(starts, said)
    if kept is not None:
        folder.keep_arrays(f"{stage.name}/closing", *kept, after=after)
    return kept


def _digest(states: Sequence[StageState]) -> str:
    """Return a digest of what a checkpoint builds on."""
    return " ".join(map(digest_of, states))
