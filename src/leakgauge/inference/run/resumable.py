"""An audit that can be stopped at any moment and started again with the same folder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import InputError
from leakgauge.core.types import Params
from leakgauge.gradients import params_of
from leakgauge.inference.run import Played, Stage, judge, play_round, trajectory, weigh_rounds
from leakgauge.results.measurements import Measurement, write_measurements
from leakgauge.runs.executors import spread
from leakgauge.runs.store import RunFolder

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much."""


def run_stages(
    folder: RunFolder,
    scenes: Sequence[Stage],
    *,
    dataset: str,
    label: str,
    workers: int | None,
    progress: Progress = lambda what, done, of: None,
    refused: Callable[[str], None] = lambda text: None,
) -> list[Measurement]:
    """Train, attack and judge every scene; finished rounds are read back from the folder.

    The records are the same however often the run was interrupted and however many workers there
    are; ``measurements.jsonl`` is written at the end.

    Args:
        folder: of the run.
        scenes: to play, one after the other.
        dataset: the data's name, for the records.
        label: the label's name, for the records.
        workers: processes; None leaves it to the machine.
        progress: told of what is done.
        refused: told of each scene that cannot be played to its end, and why; the others are kept.

    Raises:
        InputError: no scene can be played to its end.
    """
    records: list[Measurement] = []
    for number, scene in enumerate(scenes, start=1):
        try:
            starts, final = _trained(folder, scene, progress)
            rounds = _played(folder, scene, starts, workers, progress)
            jointly = _jointly(folder, scene, starts, progress)
            records += judge(scene, rounds, final, dataset=dataset, label=label, jointly=jointly)
        except InputError as error:
            if number == len(scenes) and not records:
                raise
            refused(f"{scene.name}: {error}")
    write_measurements(folder.path, records)
    return records


def _trained(folder: RunFolder, scene: Stage, progress: Progress) -> tuple[list[Params], Params]:
    """The parameters at the start of every round, and the final ones."""
    name, total = scene.name, scene.settings.rounds
    like = params_of(scene.task.model)
    kept: list[Params] = []
    while len(kept) <= total and (params := folder.params(name, len(kept) + 1, like=like)):
        kept.append(params)
    ahead = trajectory(scene, after=len(kept) - 1, params=kept[-1]) if kept else trajectory(scene)
    progress(f"{name}: training", max(0, len(kept) - 1), total)
    for current in ahead:
        kept.append(current)
        folder.keep_params(name, len(kept), current)
        progress(f"{name}: training", len(kept) - 1, total)
    return kept[:-1], kept[-1]


def _played(
    folder: RunFolder,
    scene: Stage,
    starts: Sequence[Params],
    workers: int | None,
    progress: Progress,
) -> list[Played]:
    name, total = scene.name, len(starts)
    done = {number: folder.played(name, number) for number in range(1, total + 1)}
    missing = [number for number, played in done.items() if played is None]
    jobs = [partial(_job, scene, number, starts[number - 1]) for number in missing]
    progress(f"{name}: attacking", total - len(missing), total)
    for count, (number, played) in enumerate(spread(jobs, workers=workers), start=1):
        folder.keep_played(name, number, played)
        done[number] = played
        progress(f"{name}: attacking", total - len(missing) + count, total)
    return [played for played in done.values() if played is not None]


def _jointly(
    folder: RunFolder, scene: Stage, starts: Sequence[Params], progress: Progress
) -> Mapping[str, NDArray[np.float64]]:
    """What those say who judge all rounds at once."""
    kept = folder.jointly(scene.name)
    if kept is not None:
        return kept

    def told(done: int) -> None:
        progress(f"{scene.name}: weighing all rounds", done, len(starts))

    said = weigh_rounds(scene, starts, progress=told)
    if said:
        folder.keep_jointly(scene.name, said)
    return said


def _job(scene: Stage, number: int, params: Params) -> tuple[int, Played]:
    return number, play_round(scene, number, params)
