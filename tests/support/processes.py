"""Start and kill real processes of the command."""

import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch


def start(command: Sequence[object], *, cwd: Path | None = None) -> subprocess.Popen:
    """Start the command silently in a separate process group."""
    return subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=cwd,
    )


def begin(target: Callable[..., object], *given: object) -> BaseProcess:
    """Start a function in a process of its own.

    A fork has all modules, whose import takes seconds; autograd refuses one beside a GPU.
    """
    how = "spawn" if torch.cuda.is_available() else "fork"
    process: BaseProcess = multiprocessing.get_context(how).Process(  # type: ignore[attr-defined]
        target=target, args=given, daemon=True
    )
    process.start()
    return process


def kill(running: subprocess.Popen) -> bool:
    """Kill the process and its workers by SIGKILL; return whether it was still running."""
    alive = running.poll() is None
    if alive:
        os.killpg(running.pid, signal.SIGKILL)
    running.wait(timeout=30)
    return alive


def meets(folder: Path, name: str, count: int) -> int:
    """Return 0 when as many jobs run at once, each in a process that has started."""
    (folder / f"met-{name}").touch()
    until = time.monotonic() + 60
    while len(list(folder.glob("met-*"))) < count:
        assert time.monotonic() < until
        time.sleep(0.01)
    return 0


def dies(marker: Path, times: int) -> int:
    """Kill this process at the first ``times`` calls."""
    died = len(list(marker.parent.glob(f"{marker.name}-*")))
    if died < times:
        marker.with_name(f"{marker.name}-{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return -1
