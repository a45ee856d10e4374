"""Exact recovery of batches: its time as a ratio to a literal search, wrong certificates, layers.

    python benchmarks/exact_batch.py [--part ratio,certificates,layers] [--gradients 1000]
        [--batches 4,8,12,16,18] [--seeds 3]

``ratio``: processor seconds of a literal search of SPEAR, which draws rows at random, over that of
`exact-batch`, on equal gradients: rows of a made table with 64 encoded columns, a network of the
width 400-200, float64. ``certificates``: random and noised float32 gradients of 4 records, and how
many batches are certified whose records are wrong. ``layers``: inputs to linear layers that records
do not enter as they are, in untrained networks for images of CIFAR-10 and rows of Adult, float32:
how many records have exact inputs (to 0.1 % of the largest), certified batches, processor seconds.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from leakgauge.core.rng import stream, torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.data import open_data
from leakgauge.gradients import batch_gradients, params_of
from leakgauge.inversion.exact_batch.layer import layer_before_relu
from leakgauge.inversion.exact_batch.recovery import Recovery, recover
from leakgauge.inversion.observed import RecoveredInputs
from leakgauge.inversion.run.preparing import InversionPrepared, prepare
from leakgauge.inversion.scoring import layer_inputs_exact
from leakgauge.inversion.spec import InversionSpec
from leakgauge.models import mlp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
spear: Any = import_module("support.references.spear").spear

torch.set_num_threads(1)
NUMBERS, GROUPS = 6, (2, 7, 16, 9, 14, 10)
WIDTH, SEEDS = NUMBERS + sum(GROUPS), 3
NOISES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-2, 1.0)
SAME = 1e-3
LAYERS: tuple[tuple[str, dict[str, Any], str, int], ...] = (
    *(
        ("cifar10", {"net": net}, "", count)
        for net in ("cnn-2", "alexnet")
        for count in (8, 16, 32, 64)
    ),
    *(
        ("cifar10", {"net": net, "init": init}, layer, 16)
        for net, layers in (("alexnet-3fc", ("15", "17")), ("vgg11", ("20", "22")))
        for init in ("pytorch", "he")
        for layer in layers
    ),
    *(("adult", {"hidden": (400, 200)}, "2", count) for count in (8, 16, 32)),
)
"""Data, network, layer (the first that fits) and records of a batch."""

MOST = 10_000_000
"""Largest number of draws of the literal search."""


def batch(count: int, seed: int) -> tuple[Task, Tensor, dict[str, Tensor]]:
    """Return a network, rows of a made table, and their gradient."""
    rng = stream(seed, "rows")
    hot = [np.eye(width)[rng.integers(width, size=count)] for width in GROUPS]
    x = torch.from_numpy(np.hstack([rng.normal(size=(count, NUMBERS)), *hot])).double()
    y = torch.from_numpy(rng.integers(3, size=count))
    model = mlp(WIDTH, 3, (400, 200), generator=torch_stream(seed, "model")).double()
    task = Task(model, cross_entropy)
    grads = batch_gradients(task, params_of(model), x[None], y[None])
    return task, x, {name: leaf[0] for name, leaf in grads.items()}


def ours(task: Task, grads: Grads, count: int, seed: int, most: int = 60) -> Recovery:
    """Return the records by ``exact-batch``."""
    layer = layer_before_relu(task, params_of(task.model), torch.zeros(WIDTH, dtype=torch.float64))
    precision = next(iter(grads.values())).dtype
    flags = torch.arange(NUMBERS, WIDTH)
    return recover(layer, grads, count, flags=flags, precision=precision, seed=seed, most=most)


def right(truth: Tensor, found: Tensor) -> int:
    """Return how many records are found."""
    if not len(found):
        return 0
    return int((torch.cdist(truth, found, p=float("inf")).amin(dim=1) <= SAME).sum())


def ratio(counts: Iterable[int]) -> Iterator[str]:
    """Yield the lines of the table of times."""
    yield (
        "| batch | seed | records by exact-batch | seconds | by random rows | draws | seconds | "
        "times as fast |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for count in counts:
        for seed in range(SEEDS):
            task, x, grads = batch(count, seed)
            name = next(iter(grads)).rpartition(".")[0]
            both = torch.cat([grads[f"{name}.weight"], grads[f"{name}.bias"][:, None]], dim=1)
            start = time.process_time()
            found = ours(task, grads, count, seed)
            middle = time.process_time()
            weight, bias = (params_of(task.model)[f"{name}.{one}"] for one in ("weight", "bias"))
            drawn = torch_stream(seed, "drawn")
            literal, draws = spear(both, weight, bias, count, drawn, most=MOST)
            fast, slow = middle - start, time.process_time() - middle
            mine = f"{right(x, found.x)} | {fast:.2f}"
            theirs = f"{right(x, literal)} | {draws:,} | {slow:.2f}"
            yield f"| {count} | {seed} | {mine} | {theirs} | {slow / fast:.1f} |"


def certificates(gradients: int) -> Iterator[str]:
    """Yield the lines of the table of certificates."""
    yield "| gradients | of | certified | certified with a wrong record |"
    yield "|---|---|---|---|"
    for noise in (*NOISES, None):
        certified = wrong = 0
        tried = gradients // (len(NOISES) + 1)
        for seed in range(tried):
            task, x, grads = batch(4, seed)
            for name, leaf in grads.items():
                drawn = torch.randn(
                    leaf.shape, generator=torch_stream(seed, "noise", name), dtype=leaf.dtype
                )
                noisy = drawn if noise is None else leaf + noise * leaf.std() * drawn
                grads[name] = noisy.float()
            found = ours(task, grads, 4, seed, most=4)
            certified += found.is_certified
            wrong += found.is_certified and right(x, found.x) < 4
        of = "random" if noise is None else f"noise of {noise:g} standard deviations"
        yield f"| {of} | {tried} | {certified} | {wrong} |"


def layers(seeds: int) -> Iterator[str]:
    """Yield the lines of the table of layers."""
    yield "| data | network | layer | units, inputs | records | exact | certified | seconds |"
    yield "|---|---|---|---|---|---|---|---|"
    for data, settings, name, count in LAYERS:
        exact, certified, seconds = [], 0, []
        for seed in range(seeds):
            spec = InversionSpec(
                data=data, draw="random", images=count, batch_size=count, seed=seed, **settings
            )
            prepared = prepare(spec, open_data(data))
            assert isinstance(prepared, InversionPrepared)
            seen = prepared.scenario
            sent = batch_gradients(seen.task, seen.params, seen.x[None], seen.y[None])
            start = time.process_time()
            layer = layer_before_relu(seen.task, seen.params, seen.guess, name)
            grads = {one: leaf[0] for one, leaf in sent.items()}
            found = recover(
                layer, grads, count, flags=None, precision=torch.float32, seed=seed, most=60
            )
            seconds.append(time.process_time() - start)
            inputs = RecoveredInputs(layer.name, (found.x,), torch.zeros(1), layer.inputs)
            exact.append(float(layer_inputs_exact(inputs, seen.x[None]).mean()))
            certified += found.is_certified
        network = ", ".join(str(one) for one in settings.values())
        size = ", ".join(map(str, layer.weight.shape))
        shares = f"{np.mean(exact):.3f} | {certified} of {seeds}"
        times = f"{np.median(seconds):.1f}, {max(seconds):.1f}"
        yield f"| {data} | {network} | {layer.name} | {size} | {count} | {shares} | {times} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="ratio,certificates")
    parser.add_argument("--gradients", type=int, default=1000)
    parser.add_argument("--batches", default="4,8,12,16,18")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name in options.part.split(","):
        parts: dict[str, Callable[[], Iterator[str]]] = {
            "ratio": lambda: ratio(map(int, options.batches.split(","))),
            "certificates": lambda: certificates(options.gradients),
            "layers": lambda: layers(options.seeds),
        }
        for line in parts[name]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
