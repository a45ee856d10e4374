"""Independent jobs, spread over processes."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from leakgauge.core.checks import require
from leakgauge.core.memory import allowed, bounded, fitting
from leakgauge.runs.work import Say

Returned = TypeVar("Returned")

WORTH_STARTING = 20.0
"""Seconds of work that starting processes (each imports torch anew) pays for."""

TWICE = "a worker process died twice (killed, or out of memory)"
DIED = f"{TWICE}; what is finished is kept: repeat the command with --workers 1"


def spread(
    jobs: Sequence[Callable[[], Returned]],
    *,
    workers: int | None,
    memory: int = 0,
    given_up: Callable[[int], Returned] | None = None,
) -> Iterator[Returned]:
    """Run the jobs and yield what they return, in the order in which they end.

    If a process dies, the jobs that may have killed it run once more, each alone in a process.
    One that kills its process again is given up; the others continue.

    Args:
        jobs: independent of each other.
        workers: processes; 1 runs the jobs in this one, in order. None decides by the first job,
            which runs here: processes are started if the others would take long.
        memory: bytes that a job needs in addition to its process; only as many processes run as
            fit. 0 if unknown.
        given_up: returns what a job that is given up yields, from its number; None raises.

    Raises:
        InputError: a job killed its process twice, and ``given_up`` is None.
    """
    if not jobs:
        return
    if workers is None:
        began = time.perf_counter()
        yield jobs[0]()
        seconds = time.perf_counter() - began
        jobs = jobs[1:]
        workers = cpu_count() if seconds * len(jobs) > WORTH_STARTING else 1
    workers = fitting(workers, memory) if memory else workers
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job()
        return
    left = dict(enumerate(jobs))
    while left:
        try:
            for number, result in _in_processes(left, min(workers, len(jobs))):
                del left[number]
                yield result
        except TerminatedWorkerError:  # its text has the traces of all processes
            suspects = [*left][:workers]  # jobs start in their order
        else:
            return
        for number in suspects:
            yield _alone(number, left.pop(number), given_up)


class Processes:
    """Runs jobs in processes of this machine, which share its folders. See ``Executor``."""

    apart = False
    lost = TWICE
    memory: int | None = None

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def spread(
        self,
        jobs: Sequence[Callable[[], Returned]],
        *,
        given_up: Callable[[int], Returned],
        say: Say,
    ) -> Iterator[Returned]:
        """Run the jobs and yield what they return, in the order in which they end."""
        return spread(jobs, workers=self.workers, given_up=given_up)


def _in_processes(
    jobs: Mapping[int, Callable[[], Returned]], workers: int
) -> Iterator[tuple[int, Returned]]:
    """Yield the number and the result of each job; all end with this process."""
    parallel = Parallel(n_jobs=workers, return_as="generator_unordered")  # with 1, here
    try:
        yield from parallel(
            delayed(_undisturbed)(number, job, allowed() // workers)
            for number, job in list(jobs.items())
        )
    except BaseException:
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _alone(
    number: int, job: Callable[[], Returned], given_up: Callable[[int], Returned] | None
) -> Returned:
    """Run a job while no other job runs."""
    try:
        ((_, result),) = _in_processes({number: job}, 2)  # with 1 it would run in this process
    except TerminatedWorkerError:
        require(given_up is not None, DIED)
        assert given_up is not None
        return given_up(number)
    return result


def _undisturbed(number: int, job: Callable[[], Returned], memory: int) -> tuple[int, Returned]:
    """Run a job; only the process that started the run answers Ctrl-C and a closed terminal."""
    for one in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):  # both reach all
        signal.signal(one, signal.SIG_IGN)
    with bounded(str(memory)):
        return number, job()
