"""Measure speed and memory of gradients as factors against gradients of each record.

Run: ``python benchmarks/membership.py [--threads N] [--repetitions 5]``. It prints only ratios:
both sides run in turn in one process, and each turn gives a ratio. It ends with an error if a
median is below its floor.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.factored.factors import factors
from leakgauge.models import mlp

RECORDS, KERNELS, BATCH = 1600, 100, 64
SPEED, SIZE, PROJECTION = 20, 20, 3
"""Smallest accepted ratios."""


def network() -> Task:
    """Return a network of four linear layers, as in the paper."""
    generator = torch.Generator().manual_seed(0)
    return Task(mlp(446, 30, hidden=(512, 256, 128), generator=generator))


def whole(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the gradients of each record by ``vmap``, as in torch's tutorial."""

    def loss(params: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(task.model, params, (one[None],))
        return functional.cross_entropy(outputs, label[None])

    made: dict[str, Tensor] = vmap(grad(loss), in_dims=(None, 0, 0))(
        dict(params_of(task.model)), x, y
    )
    return made


def through(project: Callable[[], Tensor], kernels: Tensor, slope: Tensor) -> None:
    """Run forward and backward through kernels as long as a row of the gradient."""
    torch.autograd.grad(project(), kernels, slope)


def ratios(slow: Callable[[], object], fast: Callable[[], object], turns: int) -> list[float]:
    fast()
    return [seconds(slow) / seconds(fast) for _ in range(turns)]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report(what: str, found: list[float], floor: float) -> bool:
    """Print the ratios, and return whether their median reaches the floor."""
    median = statistics.median(found)
    print(f"{what}: {median:.1f} times ({min(found):.1f} to {max(found):.1f}), floor {floor}")
    return median >= floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    task = network()
    x = (torch.rand(RECORDS, 446, generator=generator) < 0.12).float()
    y = torch.randint(30, (RECORDS,), generator=generator)
    params = params_of(task.model)

    made, kept = whole(task, x, y), factors(task, params, x, y)
    full = sum(leaf.nbytes for leaf in made.values())
    small = sum(leaf.nbytes for one in kept.values() for leaf in one.tensors().values())
    first = next(iter(kept.values())).rows(slice(0, BATCH))
    gradient = next(iter(first.gradient().values()))
    kernels = torch.randn(KERNELS, first.in_features, generator=generator, requires_grad=True)
    slope = torch.randn(BATCH, first.out, KERNELS, generator=generator)

    del made
    fine = [
        report(
            f"features of {RECORDS} records, four linear layers, faster by factors",
            ratios(
                lambda: whole(task, x, y), lambda: factors(task, params, x, y), options.repetitions
            ),
            SPEED,
        ),
        report("the same features, smaller by factors", [full / small], SIZE),
        report(
            f"convolution of {KERNELS} input-size kernels, batches of {BATCH}, faster on factors",
            ratios(
                lambda: through(lambda: gradient @ kernels.T, kernels, slope),
                lambda: through(lambda: first.project(kernels), kernels, slope),
                4 * options.repetitions,
            ),
            PROJECTION,
        ),
    ]
    if not all(fine):
        sys.exit("a ratio lies below its floor")


if __name__ == "__main__":
    main()
