"""Measure speed and memory of batch gradients against a plain autograd loop.

Run: ``python benchmarks/gradients.py [--threads N] [--repetitions 7]``. It prints only ratios:
both sides run in turn in one process, and each turn gives a ratio.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.core.types import Task
from leakgauge.gradients import batch_gradients, iter_batch_gradients, params_of
from leakgauge.models import cnn, mlp

RECORDS, BATCH = 1000, 16


def naive(task: Task, x: Tensor, y: Tensor, rows: Tensor | None) -> None:
    """Compute the gradients of single batches in a loop and write them into the stack."""
    weights = list(task.model.parameters())
    count = len(x) if rows is None else len(rows)
    out = [value.new_empty(count, *value.shape) for value in weights]
    for trial in range(count):
        batch = trial if rows is None else rows[trial]
        grads = torch.autograd.grad(task.loss(task.model(x[batch]), y[batch]), weights)
        for stack, value in zip(out, grads, strict=True):
            stack[trial] = value


def direct(task: Task, x: Tensor, y: Tensor) -> None:
    batch_gradients(task, params_of(task.model), x, y)


def chunked(task: Task, x: Tensor, y: Tensor, rows: Tensor) -> None:
    for _ in iter_batch_gradients(task, params_of(task.model), x, y, rows):
        pass


def ratios(slow: Callable[[], None], fast: Callable[[], None], repetitions: int) -> list[float]:
    fast()
    return [seconds(slow) / seconds(fast) for _ in range(repetitions)]


def seconds(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name: str, model: nn.Module, shape: tuple[int, ...], trials: int, turns: int) -> None:
    """Print the ratios of one model; arbitrary batches do not repeat records."""
    generator = torch.Generator().manual_seed(0)
    task = Task(model, F.cross_entropy)
    x = torch.randn(trials, BATCH, *shape, generator=generator)
    y = torch.randint(0, 2, (trials, BATCH), generator=generator)
    show(
        f"{name}, {trials} arbitrary batches",
        ratios(lambda: naive(task, x, y, None), lambda: direct(task, x, y), turns),
    )
    all_x, all_y = x.flatten(0, 1), y.flatten()
    apart = torch.arange(trials * BATCH).view(trials, BATCH)
    show(
        f"{name}, these batches, chunk by chunk",
        ratios(lambda: naive(task, x, y, None), lambda: chunked(task, all_x, all_y, apart), turns),
    )
    pool_x, pool_y = all_x[:RECORDS], all_y[:RECORDS]
    rows = torch.randint(0, len(pool_x), (trials, BATCH), generator=generator)
    speedups = ratios(
        lambda: naive(task, pool_x, pool_y, rows),
        lambda: chunked(task, pool_x, pool_y, rows),
        turns,
    )
    show(f"{name}, {trials} batches from {len(pool_x)} records", speedups)


def show(name: str, values: list[float]) -> None:
    middle = statistics.median(values)
    print(f"{name:<46} {middle:6.2f}  ({min(values):.2f} to {max(values):.2f})", flush=True)


def audit_mlp() -> nn.Module:
    return mlp(108, 2, generator=torch.Generator().manual_seed(0))


def small_cnn() -> nn.Module:
    return cnn(3, 10, generator=torch.Generator().manual_seed(0))


def peak_bytes(trials: int, threads: int) -> int:
    """Return the peak memory of a fresh process that iterates over ``trials`` batches."""
    command = [sys.executable, __file__, "--walk", str(trials), "--threads", str(threads)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def walk(trials: int) -> None:
    task = Task(audit_mlp(), F.cross_entropy)
    x, y = torch.randn(RECORDS, 108), torch.zeros(RECORDS, dtype=torch.int64)
    chunked(task, x, y, torch.randint(0, RECORDS, (trials, BATCH)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak * (1 if sys.platform == "darwin" else 1024))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--walk", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.walk:
        walk(options.walk)
        return
    # Memory comes first: on Linux a new process inherits the peak of its parent.
    few, many = peak_bytes(5000, options.threads), peak_bytes(50_000, options.threads)
    size = sum(value.numel() * value.element_size() for value in audit_mlp().parameters())
    print(f"Peak memory of 50000 MLP gradients over that of 5000: {many / few:.3f}")
    print(f"  (their stack alone would be {50_000 * size / few:.1f} times that peak)")
    print(f"{options.threads} thread(s), batches of {BATCH}; times faster than the loop:")
    print(f"{'':<46} median  (min to max of {options.repetitions})")
    compare("MLP 108-100-2", audit_mlp(), (108,), 2000, options.repetitions)
    compare("CNN 3x32x32", small_cnn(), (3, 32, 32), 300, options.repetitions)
    compare("CNN 3x32x32", small_cnn(), (3, 32, 32), 2000, max(1, options.repetitions // 2))


if __name__ == "__main__":
    main()
