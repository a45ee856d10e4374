"""Records rebuilt from clients with BatchNorm in training mode, by ``federation``.

    python benchmarks/federation_statistics.py OUT [STATISTICS ...]

Each client has 8 images of CIFAR-10, 16 x 16, and makes one step of SGD on all of them, or two or
four on some. STATISTICS are ``none`` and ``inferred``, with three starts each. Prints one line for
each federation of one client, with another network and other images for each of three seeds: the
PSNR of the chosen start, its interval, and the PSNR of each start.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from leakgauge.integrations.training_settings import LocalTraining
from one_client import keep, rebuilt, write_task

BATCH, LR, SEEDS = 8, 0.05, 3
LENGTHS = {"1 step of 8": (8, 1), "4 steps of 8": (8, 4), "2 steps of 4": (4, 2)}
"""Records of a step and number of steps, over the same 8 images."""

TASK = """import torch
import leakgauge
from torch import nn

def net():
    torch.manual_seed({seed})
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Conv2d(24, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 64, 10),
    ).train()

def task():
    kept = torch.load("records.pt")
    data = leakgauge.from_arrays(kept["x"], kept["y"], {{"client": kept["client"]}})
    return leakgauge.Task(net()), data
"""


def one(folder: Path, length: tuple[int, int], seed: int, *more: str) -> dict[str, Any]:
    """Return what the command says of a client's update, with the PSNR of each start."""
    model, x, y = write_task(folder, TASK.format(seed=seed), BATCH, seed)
    size, steps = length
    each = [torch.arange(len(x)).roll(-at * size)[:size] for at in range(steps)]
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    local = LocalTraining(lr=LR, batch_size=size, steps=steps, optimizer="sgd")
    keep(folder, model, optimizer, [(x[rows], y[rows]) for rows in each], local, BATCH)
    found, kept = rebuilt(folder, *more)
    return {**found, "starts": kept["starts"]}


def main() -> None:
    """Print a line for each federation."""
    out, *kinds = sys.argv[1:]
    for name, length in LENGTHS.items():
        for kind in kinds or ("none", "inferred"):
            for seed in range(SEEDS):
                at = Path(out) / f"{name}-{kind}-{seed}".replace(" ", "-")
                found = one(at, length, seed, "--statistics", kind, "--restarts", "3")
                ends = f"{found['low']:.1f} to {found['high']:.1f}"
                matched = f"matched {found['matched']['value']:.3f}"
                print(
                    f"{name}, {kind}, seed {seed}: {found['value']:.1f} dB ({ends}), guess "
                    f"{found['chance']:.1f}, starts {found['starts']}, {matched}, "
                    f"{found['verdict']}"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
