"""Where the cells of a grid run: processes of this machine, or a cluster."""

import importlib.util
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol, TypeVar

from leakgauge.core.checks import InputError, require, require_choice
from leakgauge.core.extras import install_command
from leakgauge.core.memory import OPTION, VARIABLE, allowed
from leakgauge.runs.executors.cluster import Cluster, Clustered
from leakgauge.runs.work import Say

Returned = TypeVar("Returned")

PROCESSES, DASK, RAY = "processes", "dask", "ray"
EXECUTORS = (PROCESSES, DASK, RAY)
"""The words of ``--executor``."""

PACKAGES = {DASK: "distributed", RAY: "ray"}
"""The package that each cluster needs; the extra has the name of the executor."""


ADDRESSES = {
    DASK: ("(?:tcp|tls|ws|wss)://", "tcp://host:8786"),
    RAY: ("ray://", "ray://host:10001, host:6379 or auto"),
}
"""Beginning of an address, and examples."""

PATIENCE = 10.0
"""Seconds within which a cluster must answer."""


class Executor(Protocol):
    """Runs independent jobs.

    Attributes:
        apart: whether the jobs share no folder, and no packages, with this process.
        lost: why a job that was given up has no result.
        workers: jobs that run at once, as far as is known now.
        memory: bytes that a worker may use; None if its own machine decides.
    """

    @property
    def apart(self) -> bool:
        """Whether jobs and this process share no folder."""
        ...

    @property
    def lost(self) -> str:
        """Why a job that was given up has no result."""
        ...

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        ...

    @property
    def memory(self) -> int | None:
        """Bytes that a worker may use."""
        ...

    def spread(
        self,
        jobs: Sequence[Callable[[], Returned]],
        *,
        given_up: Callable[[int], Returned],
        say: Say,
    ) -> Iterator[Returned]:
        """Run the jobs and yield what they return, in the order in which they end.

        Args:
            jobs: independent of each other.
            given_up: returns what a job that lost its worker too often yields, from its number.
            say: gets a note if the jobs must wait.
        """
        ...


def make_executor(
    name: str, *, jobs: int | None, address: str | None, max_memory: str | None, gpu: bool
) -> Executor:
    """Return the executor of the options of ``run``; a cluster is started with its first job.

    Args:
        name: one of ``EXECUTORS``.
        jobs: processes of this machine; None for 1; with an address the cluster decides.
        address: address of a running cluster; None starts one on this machine.
        max_memory: as a user gave it; the caller bounds this process.
        gpu: whether each job needs one.

    Raises:
        InputError: the options do not fit together, or a package is missing.
    """
    require_choice(name, "--executor", EXECUTORS)
    if name == PROCESSES:
        require(
            address is None,
            "--address is of a cluster; add --executor dask or --executor ray, or leave it out",
        )
        from leakgauge.runs.executors.processes import Processes

        return Processes(jobs or 1)
    if address is not None:
        require(jobs is None, "--jobs is given, but the cluster of --address decides; leave it out")
        require(
            max_memory is None,
            f"{OPTION} bounds this machine; set {VARIABLE} where the workers of --address start",
        )
    if importlib.util.find_spec(PACKAGES[name]) is None:
        raise InputError(
            f"--executor {name} needs {PACKAGES[name]}, which is not installed: "
            f"{install_command(name)}"
        )
    if address is not None:
        _check_address(name, address)
    count = jobs or 1
    memory = allowed() // count if address is None else None
    return Clustered(partial(_connect, name, address, count, gpu), count, memory)


def _check_address(name: str, address: str) -> None:
    """Refuse at once what Dask and Ray would try for minutes."""
    if name == RAY and address == "auto":
        return
    form, examples = ADDRESSES[name]
    found = re.fullmatch(rf"(?:{form})?\[?([^/\[\]]+)\]?:(\d{{1,5}})", address)
    require(
        found is not None,
        f"--address is {address!r}; expected that of a {name} cluster: {examples}",
    )
    assert found is not None
    try:
        socket.create_connection((found[1], int(found[2])), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--address {address} cannot be reached ({error}); expected that of a {name} cluster "
            f"that runs: {examples}"
        ) from error


def _connect(
    name: str, address: str | None, jobs: int, gpu: bool
) -> AbstractContextManager[Cluster]:
    """Connect with the package of the executor, which nothing else loads."""
    if name == RAY:
        from leakgauge.runs.executors import ray_cluster

        return ray_cluster.connect(address, jobs, gpu=gpu)
    from leakgauge.runs.executors import dask_cluster

    return dask_cluster.connect(address, jobs)
