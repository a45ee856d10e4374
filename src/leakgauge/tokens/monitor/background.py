"""A background process that runs one estimate at a time."""

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import torch
from joblib.externals.loky.process_executor import BrokenProcessPool, ProcessPoolExecutor

from leakgauge.core.checks import InputError
from leakgauge.core.user_code import first_line, one_line

Done = tuple[int, "dict[str, Any] | str"]
"""The step of an estimate, and its figures, or one line with the reason for their absence."""

_ALONE = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Background:
    """Runs jobs in a separate process, which the first job starts.

    The loop waits for it only at its end.

    Args:
        waiting: largest number of waiting jobs.
    """

    def __init__(self, waiting: int) -> None:
        self._room = waiting + 1
        self._executor: ProcessPoolExecutor | None = None
        self._running: deque[tuple[int, Future[dict[str, Any]]]] = deque()
        self._began = self._since = time.monotonic()
        self._busy = 0.0

    def start(self) -> None:
        """Begin to count the time of the loop."""
        self._began = time.monotonic()

    def idle(self) -> float:
        """Return the seconds of the loop in which no job ran."""
        now = time.monotonic()
        return max(0.0, now - self._began - self._busy - (now - self._since) * self.is_busy)

    def unfinished(self) -> list[int]:
        """Return the steps of jobs that have not ended."""
        return [step for step, future in self._running if not future.done()]

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, or has ended since the last call of ``ready``."""
        return bool(self._running)

    def submit(self, step: int, job: Callable[[], dict[str, Any]]) -> str | None:
        """Submit a job; return one line with the reason of a refusal, else None."""
        if len(self._running) >= self._room:
            return f"the estimate of step {self._running[0][0]} still runs"
        try:
            if self._executor is None:
                self._executor = ProcessPoolExecutor(max_workers=1, initializer=_begin, env=_ALONE)
            if not self._running:
                self._since = time.monotonic()
            self._running.append((step, self._executor.submit(job)))
        except Exception as error:  # noqa: BLE001  the loop must continue
            self.stop()
            return first_line(error)
        return None

    def ready(self) -> list[Done]:
        """Return the jobs that have ended since the last call."""
        done: list[Done] = []
        while self._running and self._running[0][1].done():
            step, future = self._running.popleft()
            done.append((step, _outcome(future)))
            if not self._running:
                self._busy += time.monotonic() - self._since
            if _died(future) and not self._running:  # waiting jobs died with it
                self.stop()
        return done

    def finish(self, seconds: float) -> list[Done]:
        """Wait for running jobs, drop those that do not end in time, and end the process."""
        deadline = time.monotonic() + seconds
        done: list[Done] = []
        while self._running and time.monotonic() < deadline:
            done += self.ready()
            if self._running:
                with contextlib.suppress(Exception):
                    self._running[0][1].exception(max(0.0, deadline - time.monotonic()))
        done += self.ready()
        done += [
            (
                step,
                f"it did not end within {seconds:.3g} s of the loop's end; "
                f"wait={max(60, 2 * seconds):.0f} waits longer",
            )
            for step, _ in self._running
        ]
        self.stop()
        return done

    def stop(self) -> None:
        """End the process at once."""
        self._running.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False, kill_workers=True)
        self._executor = None


def _begin() -> None:
    """Set one thread and a low priority, and ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)
    torch.set_num_threads(1)


def _died(future: "Future[dict[str, Any]]") -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenProcessPool)


def _outcome(future: "Future[dict[str, Any]]") -> dict[str, Any] | str:
    if future.cancelled():
        return "it was cancelled"
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, BrokenProcessPool):
        return "its process died (killed, or out of memory)"
    return one_line(error)
