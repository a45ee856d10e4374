"""Measure one iteration of gradient inversion on a GPU, in the ways in which it can be repeated.

Run: ``python benchmarks/gpu_step.py [--repetitions 7] [--nets slim ...]``. All sides run in turn in
one process. The table has the speed over plain double backward, which runs the targets one after
the other: of our step as it is, of its recording, and of the recording as one CUDA graph. It also
has the milliseconds of the last, to plan a search with.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from inversion import case, double_backward, iteration, nets, shown, times
from leakgauge.core.precision import full_precision
from leakgauge.gradients import params_of
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.recording import RecordedObjective
from leakgauge.inversion.search.objective import Cosine, against

SIZES = (1, 1), (8, 1), (1, 4), (4, 4), (1, 16)
"""Targets, and records of each."""

CALLS = 10
"""Calls of each side in a turn."""


def sides_of(name: str, targets: int, batch: int) -> list[Callable[[], object]]:
    """Return one iteration: literal, ours, recorded, and as a CUDA graph."""
    task, _, x, y, wanted = case(nets()[name](), targets, batch)
    task.model.cuda()
    params = params_of(task.model)
    x, y, wanted = x.cuda(), y.cuda(), {k: v.cuda() for k, v in wanted.items()}

    def literal() -> None:
        step = partial(double_backward, task, params)
        for row in range(targets):
            own = {k: v[row : row + 1] for k, v in wanted.items()}
            iteration(step, x[row : row + 1], y[row : row + 1], own)

    compared = against(Cosine(), wanted)

    def objective(x: Tensor, y: Tensor) -> Tensor:
        return compared(differentiable_gradients(task, params, x, y))

    def slope(objective: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        guess = x.detach().requires_grad_()
        return torch.autograd.grad(objective(guess, y).sum(), guess)[0]

    listed, graph = [RecordedObjective(objective, cuda_graph=flag) for flag in (False, True)]
    for _ in range(4):
        slope(listed)
        slope(graph)
    if not graph.on_gpu:
        sys.exit(f"{name}: the recording did not become a CUDA graph")
    return [literal, *[partial(slope, one) for one in (objective, listed, graph)]]


def seconds(call: Callable[[], object]) -> float:
    """Return the duration of the calls of a turn, until the GPU is done."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    times(call, CALLS)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--nets", nargs="+", default=list(nets()))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no GPU")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'':<38} {'as it is':<24} {'recorded':<24} {'CUDA graph':<24} ms")
    with full_precision():
        for name in options.nets:
            for targets, batch in SIZES:
                sides = sides_of(name, targets, batch)
                for call in sides:
                    seconds(call)
                turns = [[seconds(call) for call in sides] for _ in range(options.repetitions)]
                ratios = [shown([turn[0] / turn[side] for turn in turns]) for side in (1, 2, 3)]
                label = f"{name}, {targets} targets of {batch}"
                least = statistics.median(turn[3] for turn in turns) / CALLS * 1000
                print(f"{label:<38} {' '.join(f'{r:<24}' for r in ratios)} {least:.2f}", flush=True)


if __name__ == "__main__":
    main()
