"""Speed of sensitivity by layer through factors against the gradients of each record.

Run: ``python benchmarks/layers.py [--threads N] [--repetitions 5]``. Both sides run in turn in one
process, and each turn gives a ratio. It ends with an error where the median lies below its floor.
The seconds are printed as information alone.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from leakgauge.core.types import Task
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.layers import information_bounds, jacobian_sensitivity
from leakgauge.models import build

RECORDS, CLASSES, SIDE = 64, 2, 32
FLOORS = {"alexnet": 1.5, "vgg11": 1.0, "fcnet": 1.2}
OUTPUTS = (1000, 4096)
"""Records and values of a layer whose information is bounded."""


def by_records(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The squared norms of the Jacobians from whole gradients, one class after the other."""
    total: dict[str, Tensor] = {}
    params = params_of(task.model)
    for label in range(CLASSES):
        made = per_example_gradients(task, params, x, torch.full_like(y, label))
        for name, leaf in made.items():
            rows = leaf.flatten(1)
            sizes = [torch.linalg.vector_norm(rows, p, dim=1) for p in (1, 2, torch.inf)]
            ends = rows.amax(1) - rows.amin(1)
            total[name] = total.get(name, 0) + torch.stack([*sizes, ends])
    return total


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report(name: str, turns: int, floor: float) -> bool:
    """Print ratio and seconds, and return whether the median ratio reaches the floor."""
    generator = torch.Generator().manual_seed(0)
    model = build(name, channels=3, classes=CLASSES, side=SIDE, generator=generator)
    x = torch.randn(RECORDS, 3, SIDE, SIDE, generator=generator)
    y = torch.randint(CLASSES, (RECORDS,), generator=generator)
    task, params = Task(model), params_of(model)

    jacobian_sensitivity(task, params, x, y)
    slow, fast = [], []
    for _ in range(turns):
        slow.append(seconds(lambda: by_records(task, x, y)))
        fast.append(seconds(lambda: jacobian_sensitivity(task, params, x, y)))
    ratios = [one / other for one, other in zip(slow, fast, strict=True)]
    median = statistics.median(ratios)
    print(
        f"sensitivity of {name}, {RECORDS} records, {CLASSES} classes: {median:.1f} times "
        f"({min(ratios):.1f} to {max(ratios):.1f}), floor {floor}; "
        f"{statistics.median(fast):.3f} s by factors"
    )
    return median >= floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fine = [report(name, options.repetitions, floor) for name, floor in FLOORS.items()]
    outputs = torch.randn(OUTPUTS, generator=torch.Generator().manual_seed(0))
    taken = seconds(lambda: information_bounds(outputs))
    print(f"information of {OUTPUTS[0]} records, {OUTPUTS[1]} values: {taken:.3f} s")
    if not all(fine):
        sys.exit("a ratio lies below its floor")


if __name__ == "__main__":
    main()
