"""Jobs on the workers of a Dask cluster."""

import logging
import pickle
import signal
import time
import uuid
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.runs.executors.cluster import Cluster, LostError

ENDED = (
    "the connection to the Dask cluster is lost; finished cells are kept: start the cluster, and "
    "repeat the command"
)

_LOOKS = 20
"""How often ``ended`` looks in a second."""


class _Called:
    """A job that runs where it is unpickled.

    The scheduler unpickles what it is given, and need not have leakgauge; a worker that lacks it
    says so.
    """

    def __init__(self, job: Callable[[], Any]) -> None:
        self._job = job

    def __reduce__(self) -> tuple[Callable[[], Any], tuple[()]]:
        return self._job, ()


class DaskCluster:
    """The jobs of one ``distributed.Client``. See ``Cluster``."""

    patience = 2
    """The scheduler itself tries four workers, also for a job that waited at a killed worker."""

    def __init__(self, client: Any) -> None:
        from distributed import as_completed

        self._client = client
        self._done = as_completed(loop=client.loop)
        self._name = f"leakgauge-{uuid.uuid4().hex}"
        self._count = 0

    @property
    def slots(self) -> int:
        """Number of processes of the cluster; each runs one cell at a time."""
        try:
            return len(self._client.nthreads())
        except OSError as error:
            raise InputError(ENDED) from error

    def submit(self, job: Callable[[], Any]) -> Hashable:
        """Submit a job and return its future.

        Keys of one group make the scheduler hold jobs back until a worker is free: then a worker
        that joins late gets some, and one that dies takes few with it.
        """
        self._count += 1
        future: Hashable = self._client.submit(
            pickle.loads, pickle.dumps(_Called(job)), key=(self._name, self._count), retries=0
        )
        self._done.add(future)
        return future

    def ended(self) -> Sequence[Hashable]:
        """Return futures that ended; none if a second passes without one."""
        for _ in range(_LOOKS):
            batch: list[Hashable] = list(self._done.next_batch(block=False))
            if batch:
                return batch
            time.sleep(1 / _LOOKS)
        return []

    def result(self, ticket: Any) -> Any:
        """Return what an ended job returned, or raise what it raised."""
        from distributed import CancelledError, KilledWorker

        try:
            return ticket.result()
        except KilledWorker as error:
            raise LostError from error
        except CancelledError as error:
            raise InputError(ENDED) from error

    def cancel(self, tickets: Sequence[Any]) -> None:
        """Forget jobs; a running one ends on its worker first, and its result is not read."""
        if tickets and self._client.status == "running":
            with suppress(OSError):  # the scheduler is lost, and the jobs with it
                self._client.cancel(list(tickets), force=True)


@contextmanager
def connect(address: str | None, jobs: int) -> Iterator[Cluster]:
    """Connect to a scheduler, or start one with workers on this machine.

    Args:
        address: address of the scheduler; None starts one.
        jobs: worker processes to start.

    Raises:
        InputError: no scheduler answers.
    """
    from distributed import Client, LocalCluster

    for name in ("distributed", "distributed.client"):  # they print traces on each loss
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as opened:
        if address is None:
            with _undisturbed():
                cluster = LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address="127.0.0.1:0",
                    memory_limit=None,
                    silence_logs=logging.CRITICAL,
                )
            opened.enter_context(cluster)
        try:
            client = Client(address or cluster, set_as_default=False)
        except (OSError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"--address {address} does not answer as a Dask scheduler ({reason}); expected "
                "one, for example tcp://host:8786"
            ) from error
        yield DaskCluster(opened.enter_context(client))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C back from the threads and processes that the block starts, and from theirs.

    It reaches every process of the terminal; only the one that started the run answers.
    """
    resource_tracker.ensure_running()  # the process that starts it is disturbed again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
