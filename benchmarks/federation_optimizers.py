"""Records rebuilt from kept updates of clients with different optimizers, by ``federation``.

    python benchmarks/federation_optimizers.py OUT [OPTIMIZER ...]

Each client has 4 or 8 images of CIFAR-10, 16 x 16, and makes 1 or 4 steps on all of them. The
optimizer is not named to ``leakgauge federation``; the rate is. Prints one line for each federation
of one client, with another network and other images for each of three seeds.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from leakgauge.integrations.training_settings import LocalTraining
from one_client import keep, rebuilt, write_task

OPTIMIZERS: dict[str, tuple[Any, float, dict[str, float]]] = {
    "sgd": (torch.optim.SGD, 0.05, {}),
    "momentum": (torch.optim.SGD, 0.05, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, 1e-3, {}),
    "adamw": (torch.optim.AdamW, 1e-3, {}),
    "rmsprop": (torch.optim.RMSprop, 1e-4, {}),
}

TASK = """import torch
import leakgauge
from torch import nn

def net():
    torch.manual_seed({seed})
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, stride=2, padding=1),
        nn.ReLU(), nn.Flatten(), nn.Linear(24 * 64, 10),
    ).eval()

def task():
    kept = torch.load("records.pt")
    data = leakgauge.from_arrays(kept["x"], kept["y"], {{"client": kept["client"]}})
    return leakgauge.Task(net()), data
"""


def one(folder: Path, name: str, steps: int, batch: int, seed: int, *more: str) -> dict[str, Any]:
    """Return what the command says of a client's update."""
    model, x, y = write_task(folder, TASK.format(seed=seed), batch, seed)
    make, lr, settings = OPTIMIZERS[name]
    optimizer = make(model.parameters(), lr=lr, **settings)
    local = LocalTraining(lr=lr, batch_size=batch, epochs=steps)
    keep(folder, model, optimizer, [(x, y)] * steps, local, batch)
    found, kept = rebuilt(folder, *more)
    wrong = torch.tensor(kept["labels"]).bincount(minlength=10) - y.bincount(minlength=10)
    return {**found, "right": batch - int(wrong.clamp(min=0).sum())}


def main() -> None:
    """Print a line for each federation."""
    out, *names = sys.argv[1:]
    for steps in (1, 4):
        for name in names or OPTIMIZERS:
            for batch in (4, 8):
                for seed in range(3):
                    at = Path(out) / f"{name}-{steps}-{batch}-{seed}"
                    found = one(at, name, steps, batch, seed)
                    shown = f"{found['value']:.1f} dB, guess {found['chance']:.1f}"
                    matched = found["matched"]["value"]
                    line = f"{name} steps {steps} batch {batch} seed {seed}: {shown}"
                    labels = f"labels {found['right']}/{batch}"
                    print(line, f"matched {matched:.3f}", labels, found["verdict"], sep=", ")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
