"""Independent jobs, spread over processes."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from joblib import Parallel, cpu_count, delayed
from joblib.externals.loky import get_reusable_executor

Result = TypeVar("Result")

WORTH_STARTING = 20.0
"""Seconds of work that starting processes (each imports torch anew) pays for."""


def spread(jobs: Sequence[Callable[[], Result]], *, workers: int | None) -> Iterator[Result]:
    """Run the jobs and yield what they return, in the order in which they end.

    Args:
        jobs: independent of each other.
        workers: processes; 1 runs the jobs in this one, in order. None decides by the first job,
            run here: processes of their own are started where the others would take long.
    """
    if not jobs:
        return
    if workers is None:
        began = time.perf_counter()
        yield jobs[0]()
        seconds = time.perf_counter() - began
        jobs = jobs[1:]
        workers = cpu_count() if seconds * len(jobs) > WORTH_STARTING else 1
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job()
        return
    parallel = Parallel(n_jobs=min(workers, len(jobs)), return_as="generator_unordered")
    try:
        yield from parallel(delayed(_undisturbed)(job) for job in jobs)
    except BaseException:  # stopped, or a job failed: the others must not go on without a parent
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _undisturbed(job: Callable[[], Result]) -> Result:
    """Ctrl-C reaches every process of the terminal; only the one that started the run answers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return job()
