"""Start clusters on this machine with workers that die and workers that join late."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from leakgauge.runs.question import Answer
from support.packages import TESTS
from support.toy.question import Toy


class Waiting(Toy):
    """Toy question with cells that wait while a file ``hold`` exists in the folder of the data."""

    def run(self, prepared: Any, *given: Any, workers: int | None = None) -> Answer:
        while Path(prepared.spec.data).with_name("hold").exists():
            time.sleep(0.05)
        return super().run(prepared, *given, workers=workers)


def until(true: Callable[[], Any], seconds: float = 120) -> Any:
    """Wait until ``true`` returns a true value, and return it."""
    end = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def workers_of(out: Path) -> list[int]:
    """Return the number of the process that ran each cell."""
    timings = json.loads((out / "timings.json").read_text())
    return [int(one["worker"].rpartition(":")[2]) for one in timings.values()]


@contextmanager
def started(*command: object) -> Iterator[subprocess.Popen]:
    """Yield a process that communicates by lines; kill it and its children at the end."""
    running = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(TESTS), *sys.path))},
    )
    try:
        yield running
    finally:
        running.stdin.close()  # asks it to end
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        running.stdout.close()


def ask(running: subprocess.Popen, word: str) -> Any:
    """Send a word to one of the scripts below, and return its answer."""
    running.stdin.write(word + "\n")
    running.stdin.flush()
    return json.loads(running.stdout.readline())


SCRIPT = Path(__file__)


def _dask(tell: Callable[[Any], None]) -> None:
    """Run two workers; ``kill`` kills a busy worker, ``join`` starts another one."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        tell(cluster.scheduler_address)
        for line in sys.stdin:
            pids = client.run(os.getpid)
            if line.strip() == "kill":
                busy = until(lambda: [at for at, keys in client.processing().items() if keys])
                pid = pids[busy[0]]
                os.kill(pid, signal.SIGKILL)
                until(lambda one=busy[0]: one not in client.nthreads())
                tell(pid)
            else:
                cluster.scale(len(cluster.workers) + 1)
                new = until(partial(_more, client, set(pids)))
                tell([client.run(os.getpid, workers=list(new))[one] for one in new])


def _more(client: Any, known: set[str]) -> set[str]:
    return client.nthreads().keys() - known


def _ray(tell: Callable[[Any], None]) -> None:
    """Run a node of two workers; ``kill`` kills a busy worker, ``join`` starts another node."""
    import psutil
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    late = None

    def workers(node: Any) -> list[Any]:
        raylet = node.all_processes["raylet"][0].process.pid
        return list(psutil.Process(raylet).children(recursive=True))

    try:
        tell(cluster.address)
        for line in sys.stdin:
            if line.strip() == "kill":
                busy = until(lambda: [p for p in workers(cluster.head_node) if _is_busy(p)])
                busy[0].kill()
                tell(busy[0].pid)
            elif line.strip() == "join":
                late = cluster.add_node(num_cpus=1)
                tell([])
            else:
                tell([one.pid for one in workers(late)])
    finally:
        cluster.shutdown()


def _is_busy(process: Any) -> bool:
    import psutil

    try:
        return process.cmdline()[0].startswith("ray::_call")
    except (psutil.NoSuchProcess, IndexError):
        return False


def _tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    {"dask": _dask, "ray": _ray}[sys.argv[1]](_tell)
