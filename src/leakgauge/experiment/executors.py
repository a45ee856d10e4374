"""Independent jobs, spread over processes."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from joblib import Parallel, delayed

Result = TypeVar("Result")


def spread(jobs: Iterable[Callable[[], Result]], *, workers: int) -> Iterator[Result]:
    """Run the jobs and yield what they return, in the order in which they end.

    One worker runs them in this process, in order.
    """
    if workers == 1:
        for job in jobs:
            yield job()
        return
    parallel = Parallel(n_jobs=workers, return_as="generator_unordered")
    yield from parallel(delayed(job)() for job in jobs)
