"""What attacks gain from sharing one pass over the gradients, the more the dearer these are.

Run: ``python benchmarks/inference.py [--threads N] [--repetitions 3]``. It prints only ratios:
both sides run in turn in one process, and each turn gives a ratio. It ends with an error where the
median lies below its floor.
"""

import argparse
import statistics
import sys
import time
from dataclasses import replace

import numpy as np
import torch

from leakgauge.core.types import Dataset, Task
from leakgauge.gradients import params_of
from leakgauge.inference import Shadow, parse_adversary
from leakgauge.inference.adversaries.sharing import Shared
from leakgauge.inference.adversaries.stacking import judge_held_out
from leakgauge.models import build

ATTACKS = ("forest", "logistic", "energies", "discriminant", "pca-forest")
RECORDS, BATCH, SIDE, BYTES = 600, 32, 16, 2**30
NETWORKS = {"cnn": (500, 1.2), "vgg11": (200, 1.4)}
"""Shadow batches and the floor: of a light network, whose attacks cost more, and a deep one."""


def shadow(name: str) -> Shadow:
    """Random images with a random secret, at a network for images."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(2, (RECORDS,), generator=generator)
    x = torch.randn(RECORDS, 3, SIDE, SIDE, generator=generator)
    labels = torch.randint(4, (RECORDS,), generator=generator)
    task = Task(build(name, channels=3, classes=4, side=SIDE, generator=generator))
    data = Dataset(x, labels, {"secret": codes})
    return Shadow(task, params_of(task.model), data, "secret", 2, BATCH, max_bytes=2**28)


def fit(one: Shadow, batches: int, *, shares: bool) -> float:
    """Return the seconds that all attacks take to fit and to judge held-out batches."""
    attacks = [parse_adversary(f"{name}:batches={batches}") for name in ATTACKS]
    views = [attack.view for attack in attacks if hasattr(attack, "view")]
    prior = np.log([0.5, 0.5])
    began = time.perf_counter()
    together = replace(one).sharing(Shared(views, max_bytes=BYTES))
    for attack in attacks:
        rng = np.random.default_rng(0)
        seen = together if shares else replace(one)
        fitted = attack.fit(seen, prior, rng=rng)
        judge_held_out(attack, fitted, seen, batches=batches, rng=rng)  # type: ignore[arg-type]
    return time.perf_counter() - began


def report(name: str, turns: int) -> bool:
    """Print the ratio of a network, and return whether its median reaches the floor."""
    batches, floor = NETWORKS[name]
    one = shadow(name)
    ratios = [
        fit(one, batches, shares=False) / fit(one, batches, shares=True) for _ in range(turns)
    ]
    median = statistics.median(ratios)
    print(
        f"{len(ATTACKS)} attacks on {name}, faster with one pass: {median:.1f} times "
        f"({min(ratios):.1f} to {max(ratios):.1f}), floor {floor:g}"
    )
    return median >= floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fine = [report(name, options.repetitions) for name in NETWORKS]
    if not all(fine):
        sys.exit("a ratio lies below its floor")


if __name__ == "__main__":
    main()
