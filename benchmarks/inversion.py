"""Measure the speed of the inner step of gradient inversion and of whole attacks.

Run: ``python benchmarks/inversion.py [--threads N] [--repetitions 7] [--iterations 500] [--quick]
[--cpu-time] [--only step targets local peer] [--nets slim ...]``. It prints only ratios: all sides
run in turn in one process, and each turn gives a ratio. With ``LEAKGAUGE_DATA`` set, the images are
CIFAR-10 test images. The peer is breaching 0.1.2; without it, its part is skipped.
"""

import argparse
import contextlib
import importlib
import importlib.util
import io
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leakgauge.core.types import Grads, Params, Task
from leakgauge.gradients import batch_gradients, local_updates, params_of
from leakgauge.inversion.double_backward.convolution import lasting
from leakgauge.inversion.double_backward.difference import Difference
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.recording import RecordedObjective
from leakgauge.inversion.metrics.similarity import align_to_truth, psnr
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.objective import Cosine, against
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.models import resnet20, slim

CLASSES, SHAPE = 10, (3, 32, 32)
MEAN, STD = 0.5, 0.25
"""Mean and standard deviation of the normalisation of the images."""
LOW, HIGH = torch.full(SHAPE, -MEAN / STD), torch.full(SHAPE, (1 - MEAN) / STD)

OURS: tuple[dict[str, Any], ...] = ({}, {"slope": "difference"})
"""Settings of the inner step, the default first."""

TURN = 0.05
"""Seconds that the calls of the first side take in one turn, at least about that."""

Call = Callable[[], Any]
Clock = Callable[[], float]


def nets() -> dict[str, Callable[[], nn.Module]]:
    return {
        "slim": lambda: slim(3, CLASSES, generator=seeded()),
        "ResNet20 width 16": lambda: resnet20(3, CLASSES, 16, generator=seeded()).eval(),
        "ResNet20 width 64": lambda: resnet20(3, CLASSES, 64, generator=seeded()).eval(),
    }


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def images(count: int) -> tuple[Tensor, Tensor]:
    """Return normalised test images ``[count, 3, 32, 32]`` and labels; or smooth noise."""
    path = Path(os.environ.get("LEAKGAUGE_DATA", "")) / "cifar10" / "cifar10_subset.npz"
    if path.is_file():
        with np.load(path) as stored:
            x = torch.from_numpy(stored["x_test"][:count]).permute(0, 3, 1, 2) / 255
            return (x - MEAN) / STD, torch.from_numpy(stored["y_test"][:count].astype(np.int64))
    generator = torch.Generator().manual_seed(1)
    x = F.interpolate(torch.rand(count, 3, 5, 5, generator=generator), SHAPE[1:], mode="bicubic")
    return (x.clamp(0, 1) - MEAN) / STD, torch.arange(count) % CLASSES


def plain_gradient(task: Task, x: Tensor, y: Tensor) -> None:
    """Compute the gradient of a client: forward, and backward to the weights."""
    torch.autograd.grad(task.loss(task.model(x[0]), y[0]), list(task.model.parameters()))


def double_backward(task: Task, params: Params, x: Tensor, y: Tensor) -> Grads:
    leaves = list(task.model.parameters())
    grads = torch.autograd.grad(task.loss(task.model(x[0]), y[0]), leaves, create_graph=True)
    return {name: value[None] for name, value in zip(params, grads, strict=True)}


def iteration(step: Callable[..., Grads], x: Tensor, y: Tensor, wanted: Grads) -> Tensor:
    """Return the objective's gradient in ``x``: one iteration without the optimiser."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(Cosine()(step(x, y), wanted).sum(), x)[0]


def recorded(task: Task, params: Params, x: Tensor, y: Tensor, wanted: Grads) -> tuple[Call, Call]:
    """Return one iteration, exact and by difference, as a search of many iterations repeats it."""
    params = {name: lasting(value) for name, value in params.items()}
    wanted = {name: lasting(value, 5) for name, value in wanted.items()}
    compared = against(Cosine(), wanted)
    exact = RecordedObjective(lambda x, y: compared(differentiable_gradients(task, params, x, y)))
    rows = torch.arange(len(x))
    difference = Difference(task, params, Cosine(), wanted, recorded=True)

    def slope(objective: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        guess = x.detach().requires_grad_()
        return torch.autograd.grad(objective(guess, y).sum(), guess)[0]

    calls = partial(slope, exact), partial(slope, lambda x, y: difference(x, y, rows))
    for call in calls:
        call()  # The first turn of a comparison is the second call, and ends the recording.
    return calls


def turns(sides: list[Call], repetitions: int, clock: Clock) -> list[list[float]]:
    """Return the seconds of some calls of each side in each turn, after a warm-up turn."""
    for call in sides:
        call()
    calls = max(1, round(TURN / seconds(sides[0], time.process_time)))
    return [
        [seconds(partial(times, call, calls), clock) for call in sides] for _ in range(repetitions)
    ]


def times(call: Call, number: int) -> None:
    for _ in range(number):
        call()


def attacks(sides: list[Call], options: argparse.Namespace) -> tuple[list[str], list[Tensor]]:
    """Return the speed of each attack over the last one, and the records that each rebuilds."""
    records = [call() for call in sides]
    repetitions = 1 if options.quick else 3
    times = [[seconds(call, options.clock) for call in sides] for _ in range(repetitions)]
    ratios = [shown([turn[-1] / turn[side] for turn in times]) for side in range(len(sides) - 1)]
    return ratios, records


def seconds(call: Call, clock: Clock) -> float:
    start = clock()
    call()
    return clock() - start


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f}  ({min(values):.2f} to {max(values):.2f})"


def compare_steps(options: argparse.Namespace) -> None:
    print("One iteration over one plain gradient (7 passes over 3 are 2.33, 5 over 3 are 1.67):")
    columns = ("double backward", "ours", "ours, by difference")
    print(f"{'':<30} " + " ".join(f"{column:<26}" for column in columns))
    for name in options.nets or nets():
        for batch in (1, 4) if options.quick else (1, 2, 4, 8):
            task, params, x, y, wanted = case(nets()[name](), 1, batch)
            literal = partial(iteration, partial(double_backward, task, params), x, y, wanted)
            sides: list[Call] = [partial(plain_gradient, task, x, y), literal]
            sides += recorded(task, params, x, y, wanted)
            measured = turns(sides, options.repetitions, options.clock)
            ratios = [shown([turn[side] / turn[0] for turn in measured]) for side in (1, 2, 3)]
            line = " ".join(f"{ratio:<26}" for ratio in ratios)
            print(f"{f'{name}, batch {batch}':<30} {line}", flush=True)


def case(model: nn.Module, count: int, batch: int) -> tuple[Task, Params, Tensor, Tensor, Grads]:
    """Return a task, its parameters, guesses ``[count, batch, ...]``, labels and true gradients."""
    task, params = Task(model, F.cross_entropy), params_of(model)
    x, y = images(count * batch)
    x, y = x.view(count, batch, *SHAPE), y.view(count, batch)
    wanted = batch_gradients(task, params, x, y, method="loop")
    guess = torch.randn(x.shape, generator=torch.Generator().manual_seed(2))
    return task, params, guess, y, wanted


def compare_targets(options: argparse.Namespace) -> None:
    count = 8
    print(f"{count} targets at once, times faster than in sequence:")
    for name in options.nets or (("slim",) if options.quick else ("slim", "ResNet20 width 16")):
        for batch in (1, 4):
            task, params, x, y, wanted = case(nets()[name](), count, batch)
            rows = [slice(n, n + 1) for n in range(count)]
            apart = [{k: v[row] for k, v in wanted.items()} for row in rows]
            calls = [
                recorded(task, params, x[row], y[row], own)[0]
                for row, own in zip(rows, apart, strict=True)
            ]
            together, _ = recorded(task, params, x, y, wanted)
            measured = turns([partial(each, calls), together], options.repetitions, options.clock)
            ratios = shown([turn[0] / turn[1] for turn in measured])
            print(f"{f'{name}, batch {batch}':<30} {ratios}", flush=True)


def each(calls: Sequence[Call]) -> None:
    for call in calls:
        call()


def compare_local_steps(options: argparse.Namespace) -> None:
    """Compare AGIC's one-batch approximation with the simulation of all local steps."""
    iterations = 30 if options.quick else options.iterations
    print(f"AGIC on slim, one batch against simulation, {iterations} iterations, rate 1e-4:")
    print(f"{'':<30} times faster               PSNR, dB: one batch, simulated")
    for steps in (1, 2, 4, 8):
        local = LocalSteps(steps, 1e-4)
        model = nets()["slim"]()
        task, params = Task(model, F.cross_entropy), params_of(model)
        x, y = images(steps)
        change = local_updates(task, params, x[None, :, None], y[None, :, None], lr=local.lr)
        wanted = {name: value / (-local.lr * steps) for name, value in change.items()}
        settings = preset("agic", iterations=iterations)
        attack = partial(rebuilt, task, params, wanted, y[None], settings)
        (ratio,), (one, every) = attacks([attack, partial(attack, local=local)], options)
        quality = f"{score(one, x[None]):.2f}, {score(every, x[None]):.2f}"
        print(f"{f'{steps} local steps':<30} {ratio:<26} {quality}", flush=True)


def rebuilt(
    task: Task,
    params: Params,
    wanted: Grads,
    y: Tensor,
    settings: SearchSettings,
    local: LocalSteps | None = None,
) -> Tensor:
    """Return the rebuilt records ``[T, B, ...]`` of T updates, with known labels ``y [T, B]``."""
    reconstruction = reconstruct(
        task,
        params,
        wanted,
        settings,
        shape=(y.shape[1], *SHAPE),
        labels=y,
        low=LOW,
        high=HIGH,
        local=local,
        seed=0,
    )
    return reconstruction.x


def score(images: Tensor, truth: Tensor) -> float:
    """Return the mean PSNR in dB of images ``[T, B, ...]`` that are matched to the true ones."""
    images, truth = images.detach() * STD + MEAN, truth * STD + MEAN
    pairs = zip(images, truth, strict=True)
    return float(torch.cat([psnr(own[align_to_truth(own, x)], x) for own, x in pairs]).mean())


def compare_peer(options: argparse.Namespace) -> None:
    """Compare Inverting Gradients of both programs on equal images, nets and iterations."""
    if importlib.util.find_spec("breaching") is None:
        print("breaching is not installed; skipped.")
        return
    iterations = 30 if options.quick else options.iterations
    print(f"Inverting Gradients against breaching, {iterations} iterations, labels known;")
    print("breaching runs the targets in sequence, leakgauge runs them at once:")
    print(f"{'':<44} times faster               PSNR, dB: ours, theirs")
    # The weight of the total variation is breaching's, so both solve the same problem.
    plain = preset("inverting-gradients", iterations=iterations, total_variation=0.2)
    for name in options.nets or (("slim",) if options.quick else ("slim", "ResNet20 width 64")):
        for count, batch in (1, 1), (1, 4), (8, 1):
            model = nets()[name]()
            task, params, _, y, wanted = case(model, count, batch)
            x = images(count * batch)[0].view(count, batch, *SHAPE)
            theirs = prepare_peer(model, wanted, y, iterations)
            own = [partial(rebuilt, task, params, wanted, y, replace(plain, **how)) for how in OURS]
            ratios, rebuilt_records = attacks([*own, theirs], options)
            peer = score(rebuilt_records[-1], x)
            for how, ratio, records in zip(OURS, ratios, rebuilt_records, strict=False):
                title = ", ".join([f"{name}, {count} x {batch}", *how.values()])
                print(f"{title:<44} {ratio:<26} {score(records, x):.2f}, {peer:.2f}", flush=True)


def prepare_peer(
    model: nn.Module, wanted: Grads, labels: Tensor, iterations: int
) -> Callable[[], Tensor]:
    """Return breaching's attack on the same updates, with the same knowledge as ours."""
    # breaching imports torchvision, which needs two operations that this PyTorch lacks.
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):
            torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")
    breaching = importlib.import_module("breaching")

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        config = breaching.get_attack_config(
            "invertinggradients", overrides=[f"optim.max_iterations={iterations}"]
        )
    setup = {"dtype": torch.float, "device": torch.device("cpu")}
    attacker = breaching.attacks.prepare_attack(model, nn.CrossEntropyLoss(), config, setup)
    about = SimpleNamespace(shape=SHAPE, modality="vision", mean=[MEAN] * 3, std=[STD] * 3)
    payload = [
        {
            "parameters": list(model.parameters()),
            "buffers": list(model.buffers()),
            "metadata": about,
        }
    ]

    def attack(row: int) -> Tensor:
        known = {"num_data_points": len(labels[row]), "labels": labels[row]}
        shared: dict[str, Any] = {"gradients": [v[row] for v in wanted.values()], "buffers": None}
        shared["metadata"] = {**known, "local_hyperparams": None}
        records: Tensor = attacker.reconstruct(payload, [shared], {})[0]["data"]
        return records

    return lambda: torch.stack([attack(row) for row in range(len(labels))])


SECTIONS = {
    "step": compare_steps,
    "targets": compare_targets,
    "local": compare_local_steps,
    "peer": compare_peer,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--iterations", type=int, default=500, help="iterations of whole attacks")
    parser.add_argument("--quick", action="store_true", help="fewer cases, fewer iterations")
    parser.add_argument("--cpu-time", action="store_true", help="use if others share the machine")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--nets", nargs="+", choices=nets())
    options = parser.parse_args()
    options.clock = time.process_time if options.cpu_time else time.perf_counter
    torch.set_num_threads(options.threads)
    print(f"{options.threads} thread(s); median (min to max) of {options.repetitions} turns.")
    for name in options.only:
        SECTIONS[name](options)


if __name__ == "__main__":
    main()
