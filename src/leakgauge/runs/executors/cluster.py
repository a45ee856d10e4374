"""Independent jobs, spread over the workers of a cluster; what Dask and Ray have in common."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from leakgauge.core.checks import InputError
from leakgauge.core.user_code import one_line
from leakgauge.runs.work import Say

Returned = TypeVar("Returned")

LOST = (
    "its worker was lost again and again (killed, or out of memory); what is finished is kept: "
    "repeat the command, with --executor processes to see why"
)


class LostError(Exception):
    """The worker of a job ended before the job did."""


class Cluster(Protocol):
    """A cluster to which this process is connected.

    Attributes:
        patience: how often a job is submitted that loses its worker each time.
        slots: jobs that can run at once now.
    """

    @property
    def patience(self) -> int:
        """How often a job is submitted."""
        ...

    @property
    def slots(self) -> int:
        """How many jobs can run at once now."""
        ...

    def submit(self, job: Callable[[], Any]) -> Hashable:
        """Submit a job and return its ticket."""
        ...

    def ended(self) -> Sequence[Hashable]:
        """Return tickets of jobs that ended, each once; none if a second passes without one."""
        ...

    def result(self, ticket: Any) -> Any:
        """Return what an ended job returned, or raise what it raised.

        Raises:
            LostError: its worker was lost.
            InputError: the cluster was lost.
        """
        ...

    def cancel(self, tickets: Sequence[Any]) -> None:
        """Forget jobs that have not ended."""
        ...


class Clustered:
    """Runs jobs on a cluster; it connects with the first one. See ``Executor``.

    Args:
        connect: connects to the cluster, or starts one; leaving it ends what it started.
        workers: number of workers assumed before it is asked.
        memory: bytes that a worker may use; None if its own machine decides.
    """

    apart = True
    lost = LOST

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Cluster]],
        workers: int,
        memory: int | None = None,
    ) -> None:
        self.memory = memory
        self._connect = connect
        self._expected = workers
        self._cluster: Cluster | None = None

    @property
    def workers(self) -> int:
        """How many jobs run at once, as far as is known now."""
        return self._expected if self._cluster is None else max(1, self._cluster.slots)

    def spread(
        self,
        jobs: Sequence[Callable[[], Returned]],
        *,
        given_up: Callable[[int], Returned],
        say: Say,
    ) -> Iterator[Returned]:
        """Run the jobs and yield what they return, in the order in which they end."""
        if not jobs:
            return
        with self._connect() as cluster:
            self._cluster = cluster
            try:
                yield from spread_over(cluster, jobs, given_up=given_up, say=say)
            finally:
                self._cluster = None


def spread_over(
    cluster: Cluster,
    jobs: Sequence[Callable[[], Returned]],
    *,
    given_up: Callable[[int], Returned],
    say: Say,
) -> Iterator[Returned]:
    """Run the jobs on a cluster and yield what they return, in the order in which they end.

    A job whose worker is lost is submitted again, and given up if that happens too often.

    Raises:
        InputError: the cluster was lost, or its workers lack a package.
    """
    tries: Counter[int] = Counter()
    submitted: dict[Hashable, int] = {}

    def submit(number: int) -> None:
        tries[number] += 1
        submitted[cluster.submit(jobs[number])] = number

    waits = False
    try:
        for number in range(len(jobs)):
            submit(number)
        while submitted:
            ended = cluster.ended()
            if not ended:
                waited, waits = waits, cluster.slots == 0
                if waits and not waited:
                    say("the cluster has no worker for these cells; they wait until it has one")
            for ticket in ended:
                number = submitted.pop(ticket)
                try:
                    result: Returned = cluster.result(ticket)
                except LostError:
                    if tries[number] < cluster.patience:
                        submit(number)
                    else:
                        yield given_up(number)
                except ImportError as error:  # before the job could look at its versions
                    raise InputError(
                        f"a worker lacks a package ({one_line(error)}); install there what is "
                        "installed here"
                    ) from error
                else:
                    yield result
    finally:
        cluster.cancel(list(submitted))
