"""Measure the speed of sensitivity by layer, and time per layer and memory of the question.

Run: ``python benchmarks/layers.py [--threads N] [--repetitions 5]``. Both sides run in turn in one
process, and each turn gives a ratio. It ends with an error if the median is below its floor.
The seconds are printed only as information. The peak of memory is that of a separate process.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor, nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.layers.kernel_information import information_bounds
from leakgauge.layers.question import QUESTION
from leakgauge.layers.sensitivity import jacobian_sensitivity
from leakgauge.layers.spec import LayersSpec
from leakgauge.models import build
from leakgauge.runs.question import Silent
from leakgauge.runs.work import WorkFolder

RECORDS, CLASSES, SIDE = 64, 2, 32
FLOORS = {"alexnet": 1.5, "vgg11": 1.0, "fcnet": 1.2}
OUTPUTS = (1000, 4096)
"""Records and values of the layer for the bound of the information."""

FEW, MANY, NARROW = 8, 32, 64
"""Numbers of layers of the two compared networks, and their common width."""

COST_FLOOR = 0.7
"""Smallest ratio of the cost per layer in a shallow network to that in a deep one."""

DEEP, WIDE = 6, 1024
MEMORY_FLOOR = 10.0
"""Smallest ratio of the size of all whole gradients to the peak of memory of a run."""

SMALL = LayersSpec(
    task="mine:build",
    rounds=1,
    batch_size=16,
    adversary=("forest:trees=10",),
    shadow_batches=100,
    held_out=60,
    trials=60,
)
LARGE = replace(SMALL, shadow_batches=400, held_out=200, trials=200)
SEEN = LARGE.shadow_batches + LARGE.held_out + LARGE.trials


def by_records(task: Task, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Return the squared norms of the Jacobians from whole gradients, class by class."""
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


def model_of(layers: int, width: int) -> nn.Module:
    """Return a network of linear layers that keep the norm of gradients."""
    generator = torch.Generator().manual_seed(0)
    body: list[nn.Module] = []
    for _ in range(layers - 1):
        linear = nn.Linear(width, width)
        nn.init.orthogonal_(linear.weight, 2**0.5, generator=generator)
        body += [linear, nn.ReLU()]
    return nn.Sequential(*body, nn.Linear(width, 2))


def source_of(task: Task, width: int) -> Source:
    """Return random records with a property that one of their features shows."""
    x = torch.randn(1000, width, generator=torch.Generator().manual_seed(0))
    data = Dataset(x, (x[:, 0] > 0).long(), {"p": (x[:, 1] > 0).long()})
    return Source("mine:build", pd.DataFrame(), None, None, "0", task=task, dataset=data)


def run(layers: int, width: int, spec: LayersSpec) -> None:
    """Run the question on a linear network, with the paper's forest."""
    source = source_of(Task(model_of(layers, width)), width)
    with tempfile.TemporaryDirectory() as folder:
        QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(Path(folder)), Silent(), workers=1)


def cost_by_layer(turns: int) -> bool:
    """Print the cost of a layer in a deep network, and return whether it reaches its floor."""
    run(2, NARROW, SMALL)
    ratios = []
    for _ in range(turns):
        few = seconds(lambda: run(FEW, NARROW, SMALL))
        many = seconds(lambda: run(MANY, NARROW, SMALL))
        ratios.append((few / FEW) / (many / MANY))
    median = statistics.median(ratios)
    print(
        f"a layer among {FEW} against one among {MANY}: {median:.1f} times the seconds "
        f"({min(ratios):.1f} to {max(ratios):.1f}), floor {COST_FLOOR:g}"
    )
    return median >= COST_FLOOR


def peak() -> int:
    """Return the additional bytes that the question needs on a wide network."""
    run(2, NARROW, SMALL)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(DEEP, WIDE, LARGE)
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def memory() -> bool:
    """Print the size of all gradients over the peak, and return whether it reaches its floor."""
    command = [sys.executable, __file__, "--peak"]
    taken = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    weights = sum(leaf.numel() for leaf in params_of(model_of(DEEP, WIDE)).values())
    whole = 4 * weights * SEEN
    print(
        f"gradients of {SEEN} batches, {weights:,} weights: "
        f"{whole / taken:.1f} times as large as the peak of {taken / 1e6:.0f} MB, "
        f"floor {MEMORY_FLOOR:g}"
    )
    return whole / taken >= MEMORY_FLOOR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--peak", action="store_true", help="print only the bytes of one run")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.peak:
        print(peak())
        return
    fine = [report(name, options.repetitions, floor) for name, floor in FLOORS.items()]
    outputs = torch.randn(OUTPUTS, generator=torch.Generator().manual_seed(0))
    taken = seconds(lambda: information_bounds(outputs))
    print(f"information of {OUTPUTS[0]} records, {OUTPUTS[1]} values: {taken:.3f} s")
    fine += [cost_by_layer(options.repetitions), memory()]
    if not all(fine):
        sys.exit("a ratio lies below its floor")


if __name__ == "__main__":
    main()
