"""Runs that can be killed and resumed: states in order, a step at each, a judgement at the end."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.results.measurements import Measurement
from leakgauge.runs.executors.processes import spread
from leakgauge.runs.question import Progress
from leakgauge.runs.work import WorkFolder, digest_of

State = Mapping[str, Tensor]
Kept = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]
"""What a step leaves: arrays by name, and plain values."""


class Stage(Protocol):
    """One part of a question that is played at each of its states.

    Attributes:
        name: for users and for folders.
        steps: the number of states at which something is played; the last state comes after.
        memory: bytes that a step needs at its peak, beside the process itself.
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
    def first(self) -> State:
        """The first state; all others have its names and devices."""
        ...

    def states(self, kept: Sequence[State]) -> Iterator[State]:
        """Yield the states after the ``kept`` ones, up to ``steps + 1`` in all."""
        ...

    def step(self, number: int, state: State) -> Kept:
        """Play step ``number``, which counts from 1; it depends on its arguments alone."""
        ...

    def close(self, states: Sequence[State], progress: Callable[[int], None]) -> Kept | None:
        """Play what needs all states at once; None where nothing does."""
        ...

    def judge(
        self, steps: Sequence[Kept], closing: Kept | None, final: State
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
    """Play and judge every stage; finished steps are read back from the folder.

    The measurements are the same however often the run was interrupted and however many workers
    there are.

    Args:
        folder: keeps states and steps.
        stages: to play, one after the other.
        workers: processes; None decides by the first step's time.
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
            *starts, final = _states(folder, stage, progress)
            steps = _steps(folder, stage, starts, workers, progress)
            closing = _closing(folder, stage, starts, progress)
            measurements += stage.judge(steps, closing, final)
        except InputError as error:
            if number == len(stages) and not measurements:
                raise
            missing.append(f"{stage.name}: {error}")
    return measurements, missing


def _states(folder: WorkFolder, stage: Stage, progress: Progress) -> list[State]:
    name, total = stage.name, stage.steps
    kept: list[State] = []
    while len(kept) <= total:
        after = _digest(kept[-1:])
        old = folder.tensors(f"{name}/state-{len(kept) + 1:04d}", like=stage.first, after=after)
        if old is None:
            break
        kept.append(old)
    progress.step(f"{name}: training", max(0, len(kept) - 1), total)
    for state in stage.states(tuple(kept)):
        after = _digest(kept[-1:])
        kept.append(state)
        folder.keep_tensors(f"{name}/state-{len(kept):04d}", state, after=after)
        progress.step(f"{name}: training", len(kept) - 1, total)
    return kept


def _steps(
    folder: WorkFolder,
    stage: Stage,
    starts: Sequence[State],
    workers: int | None,
    progress: Progress,
) -> list[Kept]:
    name, total = stage.name, len(starts)
    after = {at: _digest([state]) for at, state in enumerate(starts, start=1)}
    done = {at: folder.arrays(f"{name}/step-{at:04d}", after=after[at]) for at in after}
    left = [at for at, kept in done.items() if kept is None]
    jobs = [partial(_play, stage, at, starts[at - 1]) for at in left]
    progress.step(f"{name}: attacking", total - len(left), total)
    played = spread(jobs, workers=workers, memory=stage.memory)
    for count, (at, (arrays, about)) in enumerate(played, start=1):
        folder.keep_arrays(f"{name}/step-{at:04d}", arrays, about, after=after[at])
        done[at] = (dict(arrays), dict(about))
        progress.step(f"{name}: attacking", total - len(left) + count, total)
    return [kept for kept in done.values() if kept is not None]


def _play(stage: Stage, number: int, state: State) -> tuple[int, Kept]:
    return number, stage.step(number, state)


def _closing(
    folder: WorkFolder, stage: Stage, starts: Sequence[State], progress: Progress
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


def _digest(states: Sequence[State]) -> str:
    """What a checkpoint built on, in short."""
    return " ".join(map(digest_of, states))
