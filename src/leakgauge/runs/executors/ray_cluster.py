"""Jobs on the workers of a Ray cluster."""

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from leakgauge.core.checks import InputError
from leakgauge.core.user_code import one_line
from leakgauge.runs.executors.cluster import Cluster, LostError

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing about private data leaves the machines
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no hint on each start
}

UNKNOWN = "it cannot import leakgauge, or has another version of it"


class RayCluster:
    """The jobs of this process in Ray. See ``Cluster``."""

    patience = 4

    def __init__(self, *, gpu: bool) -> None:
        import ray

        self._gpus = int(gpu)
        self._call = ray.remote(_call).options(num_cpus=1, num_gpus=self._gpus, max_retries=0)
        self._waiting: list[Any] = []

    @property
    def slots(self) -> int:
        """How many cores, or GPUs, the cluster has."""
        import ray

        found = ray.cluster_resources()
        return int(min(found.get(name, 0) for name in ("CPU", "GPU")[: 1 + self._gpus]))

    def submit(self, job: Callable[[], Any]) -> Hashable:
        """Submit a job and return its reference."""
        ticket: Hashable = self._call.remote(job)
        self._waiting.append(ticket)
        return ticket

    def ended(self) -> Sequence[Hashable]:
        """Return references of jobs that ended; none if a second passes without one."""
        import ray

        done, self._waiting = ray.wait(self._waiting, num_returns=1, timeout=1.0)
        return list(done)

    def result(self, ticket: Any) -> Any:
        """Return what an ended job returned, or raise what it raised."""
        import ray
        from ray import exceptions

        try:
            return ray.get(ticket)
        except exceptions.RayTaskError as error:
            if isinstance(error.cause, RuntimeError) and "failed to import" in str(error.cause):
                raise ImportError(UNKNOWN) from error
            raise error.cause from error
        except (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.OutOfMemoryError,
            exceptions.ObjectLostError,
        ) as error:
            raise LostError from error
        except exceptions.RayError as error:
            raise InputError(
                f"the Ray cluster failed ({one_line(error)}); finished cells are kept: repeat the "
                "command"
            ) from error

    def cancel(self, tickets: Sequence[Any]) -> None:
        """End jobs, also those that run."""
        import ray

        for ticket in tickets:
            ray.cancel(ticket, force=True)


def _call(job: Callable[[], Any]) -> Any:
    return job()


@contextmanager
def connect(address: str | None, jobs: int, *, gpu: bool) -> Iterator[Cluster]:
    """Connect to a Ray cluster, or start one on this machine.

    Args:
        address: address of the cluster; None starts one.
        jobs: worker processes to start.
        gpu: whether each job needs one.

    Raises:
        InputError: no cluster answers.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    on_end = signal.getsignal(signal.SIGTERM)  # Ray takes this signal for itself
    import ray

    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init(address="local", num_cpus=jobs, include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(
            f"--address {address} does not answer as a Ray cluster ({one_line(error)}); expected "
            "one, for example ray://host:10001, host:6379 or auto"
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_end)
    try:
        yield RayCluster(gpu=gpu)
    finally:
        ray.shutdown()
