"""Records rebuilt from clients with BatchNorm in training mode, by ``federation``.

    python benchmarks/federation_statistics.py OUT [STATISTICS ...]

Each client has 8 images of CIFAR-10, 16 x 16, and makes one step of SGD on all of them, or two or
four on some. STATISTICS are ``none`` and ``inferred``, with three starts each. Prints one line for
each federation of one client, with another network and other images for each of three seeds: the
PSNR of the chosen start, its interval, and the PSNR of each start.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from leakgauge.data.named import cifar10
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.training_settings import LocalTraining

PUBLIC, BATCH, LR, SEEDS = 400, 8, 0.05, 3
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


def keep(folder: Path, length: tuple[int, int], x: Tensor, y: Tensor, seed: int) -> None:
    """Train a client from the task's network in training mode, and keep what it sends."""
    size, steps = length
    space: dict[str, Any] = {}
    exec(TASK.format(seed=seed), space)
    model: nn.Module = space["net"]()
    before = {name: leaf.detach().clone() for name, leaf in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for at in range(steps):
        rows = torch.arange(len(x)).roll(-at * size)[:size]
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(model(x[rows]), y[rows])
        torch.autograd.backward(loss)
        optimizer.step()
    local = LocalTraining(lr=LR, batch_size=size, steps=steps, optimizer="sgd")
    Keeper(folder / "kept", training=local).keep(
        Exchange(1, "0", before, dict(model.state_dict()), examples=len(x))
    )


def one(folder: Path, length: tuple[int, int], seed: int, *more: str) -> dict[str, Any]:
    """Return what the command says of a client's update, with the PSNR of each start."""
    folder.mkdir(parents=True, exist_ok=True)
    images = cifar10(side=16)
    x = torch.as_tensor(images.pixels).float() / 255
    y = torch.as_tensor(images.frame["y"].to_numpy("int64")).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 + seed))
    mine, public = order[:BATCH], order[-PUBLIC:]
    rows = torch.cat([mine, public])
    client = torch.cat([torch.ones(BATCH), torch.zeros(PUBLIC)]).long()
    torch.save({"x": x[rows], "y": y[rows], "client": client}, folder / "records.pt")
    (folder / "statistics_task.py").write_text(TASK.format(seed=seed))
    keep(folder, length, x[mine], y[mine], seed)
    words = ["federation", "kept", "--task", "statistics_task:task", "--ask", "reconstruction"]
    ended = subprocess.run(
        [sys.executable, "-m", "leakgauge", *words, "--json", "--out", "run", *more],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(ended.stdout)["reconstruction"]
    kept = json.loads((folder / "run/cells/federation/clients.json").read_text())[0]
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
