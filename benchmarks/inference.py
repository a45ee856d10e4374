"""Measure what an audit gains from computing each gradient once.

Several attacks share the gradients of their shadow batches. With images, the trials of one block
of records run in sequence and share the gradients of its records.

Run: ``python benchmarks/inference.py [--threads N] [--repetitions 2]``. It prints only ratios: both
sides run the same audit in turn in one process, and each turn gives a ratio. It ends with an error
if the median is below its floor. An audit gains more if gradients are expensive; with a light
network the attacks themselves cost most.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pandas as pd
import torch
from torch import nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from leakgauge.inference.adversaries.sharing import Shared
from leakgauge.inference.games.trials import Trials
from leakgauge.inference.question import QUESTION
from leakgauge.inference.spec import InferenceSpec
from leakgauge.models import build
from leakgauge.runs.question import Silent
from leakgauge.runs.work import WorkFolder

ATTACKS = ("forest", "logistic", "energies", "discriminant", "pca-forest")
RECORDS, SIDE, BATCHES = 3000, 32, 200
FLOORS = {"light": 1.3, "deep": 2.0}
TRIALS, ORDER_FLOOR = 2000, 2.0
NETWORKS = {"light": "cnn", "faces": "cnn-ccs24"}


def network(name: str) -> nn.Module:
    """Return a network by its name, or one of seven convolutions."""
    generator = torch.Generator().manual_seed(0)
    if name in NETWORKS:
        return build(NETWORKS[name], channels=3, classes=2, side=SIDE, generator=generator)
    torch.manual_seed(0)
    body: list[nn.Module] = []
    for read, made, pooled in (
        *((3, 16, 1), (16, 16, 1), (16, 16, 1), (16, 16, 2)),
        *((16, 32, 1), (32, 32, 2), (32, 64, 4)),
    ):
        body += [nn.Conv2d(read, made, 3, padding=1), nn.ReLU(), nn.MaxPool2d(pooled)]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(256, 2))


def source_of(name: str) -> Source:
    """Return random images with a secret that slightly changes their brightness."""
    generator = torch.Generator().manual_seed(0)
    secret = torch.randint(2, (RECORDS,), generator=generator)
    x = torch.rand(RECORDS, 3, SIDE, SIDE, generator=generator)
    x[:, 0] += 0.05 * secret[:, None, None]
    labels = torch.randint(2, (RECORDS,), generator=generator)
    data = Dataset(x, labels, {"secret": secret})
    return Source(
        "mine:build", pd.DataFrame(), None, None, "0", task=Task(network(name)), dataset=data
    )


def audit(name: str, *, shares: bool) -> float:
    """Return the seconds of an audit with all attacks."""
    made = Shared if shares else lambda *_, **__: Shared()
    with mock.patch("leakgauge.inference.run.observing.Shared", made):
        return seconds(name, ATTACKS, trials=100)


def audit_in_order(*, by_block: bool) -> float:
    """Return the seconds of an audit with one attack and many trials."""
    if by_block:
        return seconds("faces", ATTACKS[:1], trials=TRIALS)
    with mock.patch("leakgauge.inference.run.rounds.by_block", as_drawn):
        return seconds("faces", ATTACKS[:1], trials=TRIALS)


def as_drawn(trials: Trials) -> torch.Tensor:
    return torch.arange(len(trials))


def seconds(name: str, attacks: Sequence[str], *, trials: int) -> float:
    """Return the seconds of an audit."""
    source = source_of(name)
    adversaries = tuple(f"{one}:batches={BATCHES}" for one in attacks)
    spec = InferenceSpec(
        ask=("property",), task="mine:build", rounds=1, trials=trials, adversary=adversaries
    )
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        QUESTION.run(QUESTION.prepare(spec, source), WorkFolder(Path(folder)), Silent(), workers=1)
    return time.perf_counter() - began


def report(name: str, turns: int) -> bool:
    """Print the ratio of a network, and return whether its median reaches the floor."""
    ratios = [audit(name, shares=False) / audit(name, shares=True) for _ in range(turns)]
    median = statistics.median(ratios)
    print(
        f"audit with {len(ATTACKS)} attacks, {name} network, faster with gradients computed once: "
        f"{median:.1f} times ({min(ratios):.1f} to {max(ratios):.1f}), floor {FLOORS[name]:g}"
    )
    return median >= FLOORS[name]


def report_order(turns: int) -> bool:
    """Print the ratio of the two orders, and return whether its median reaches the floor."""
    ratios = [audit_in_order(by_block=False) / audit_in_order(by_block=True) for _ in range(turns)]
    median = statistics.median(ratios)
    print(
        f"audit of images with {TRIALS:,} trials, faster with those of a block together: "
        f"{median:.1f} times ({min(ratios):.1f} to {max(ratios):.1f}), floor {ORDER_FLOOR:g}"
    )
    return median >= ORDER_FLOOR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repetitions", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    fine = [report(name, options.repetitions) for name in FLOORS]
    fine.append(report_order(options.repetitions))
    if not all(fine):
        sys.exit("a ratio lies below its floor")


if __name__ == "__main__":
    main()
