"""Independent jobs, spread over processes."""

import atexit
import gc
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import islice
from typing import TypeVar

from joblib import cpu_count
from joblib.externals.loky import get_reusable_executor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from leakgauge.core.checks import require
from leakgauge.core.memory import allowed, bounded, fitting
from leakgauge.runs.work import Say

Returned = TypeVar("Returned")

WORTH_STARTING = 10.0
"""Seconds of work that starting processes (each imports torch anew) pays for."""

IDLE = 300.0
"""Seconds after which a process without a job ends."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Variables that torch and numpy read when they are loaded."""

TWICE = "a worker process died twice (killed, or out of memory)"
DIED = f"{TWICE}; what is finished is kept: repeat the command with --workers 1"


def spread(
    jobs: Iterable[Callable[[], Returned]],
    *,
    count: int,
    workers: int | None,
    memory: int = 0,
    given_up: Callable[[int], Returned] | None = None,
) -> Iterator[Returned]:
    """Run the jobs and yield what they return, in the order in which they end.

    If a process dies, the jobs that may have killed it run once more, each alone in a process.
    One that kills its process again is given up; the others continue.

    Args:
        jobs: independent of each other. This process may take long to make the next one, while
            others run those that it made.
        count: number of jobs, or more.
        workers: processes; 1 runs the jobs in this one, in order. None decides by the first job,
            which runs here: if the others would take long, this process runs them together with
            others, one on each core.
        memory: bytes that a job needs in addition to its process; only as many processes run as
            fit. 0 if unknown.
        given_up: returns what a job that is given up yields, from its number; None raises.

    Raises:
        InputError: a job killed its process twice, and ``given_up`` is None.
    """
    made, shares = enumerate(jobs), workers is None
    if workers is None:
        workers = 1
        for _, job in islice(made, 1):
            began = time.perf_counter()
            result = job()
            seconds, count = time.perf_counter() - began, count - 1
            yield result
            workers = cpu_count() if seconds * count > WORTH_STARTING else 1
    workers = fitting(workers, memory) if memory else workers
    if workers == 1 or count < 2:
        for _, job in made:
            yield job()
        return
    left: dict[int, Callable[[], Returned]] = {}
    while True:
        try:
            for number, result in _in_processes(left, made, min(workers, count), shares=shares):
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
        return spread(jobs, count=len(jobs), workers=self.workers, given_up=given_up)


def _in_processes(
    left: dict[int, Callable[[], Returned]],
    made: Iterator[tuple[int, Callable[[], Returned]]],
    workers: int,
    *,
    shares: bool = False,
) -> Iterator[tuple[int, Returned]]:
    """Yield the number and the result of each job; all processes end with this one.

    Args:
        left: jobs to run, by number.
        made: yields the other jobs, which are added to ``left``.
        workers: processes.
        shares: whether this process is one of them.
    """
    memory, waiting, processes = allowed() // workers, deque(left), workers - shares
    running: dict[Future[tuple[int, Returned]], int] = {}
    env = _threads(workers)
    # A longer wait than loky's own 10 seconds: this process may work in between.
    pool = get_reusable_executor(processes, timeout=IDLE, env=env, initializer=_started)

    def submit() -> None:
        while waiting and len(running) < 2 * processes:  # loky's thread fails on more at a stop
            number = waiting.popleft()
            running[pool.submit(_undisturbed, number, left[number], memory)] = number

    try:
        submit()
        for number, job in made:
            left[number] = job
            waiting.append(number)
            yield from _ended(running)
            submit()
        while waiting or running:
            if shares and waiting:
                number = waiting.popleft()
                with bounded(str(memory)):
                    result = left[number]()
                yield number, result
            else:
                wait(running, return_when=FIRST_COMPLETED)
            yield from _ended(running)
            submit()
    except BaseException:
        pool.shutdown(kill_workers=True)  # waits for loky's thread, which frees its locks
        raise


def _started() -> None:
    """Let a process end at once; Python would go over each object once more before, for 1 s."""
    atexit.register(gc.freeze)


def _ended(running: dict[Future[tuple[int, Returned]], int]) -> list[tuple[int, Returned]]:
    """Remove the jobs that have ended, and return what they returned."""
    ended = [one for one in running if one.done()]
    for one in ended:
        del running[one]
    return [one.result() for one in ended]


def _threads(workers: int) -> dict[str, str]:
    """Return variables that give each process its share of the cores, unless the user set them."""
    share = str(max(1, cpu_count() // workers))
    return {name: share for name in THREADS if name not in os.environ}


def _alone(
    number: int, job: Callable[[], Returned], given_up: Callable[[int], Returned] | None
) -> Returned:
    """Run a job while no other job runs."""
    try:
        ((_, result),) = _in_processes({number: job}, iter(()), 1)
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
