"""Records rebuilt from kept updates of clients with different optimizers, by ``federation``.

    python benchmarks/federation_optimizers.py OUT [OPTIMIZER ...]

Each client has 4 or 8 images of CIFAR-10, 16 x 16, and makes 1 or 4 steps on all of them. The
optimizer is not named to ``leakgauge federation``; the rate is. Prints one line for each federation
of one client, with another network and other images for each of three seeds.
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

OPTIMIZERS: dict[str, tuple[Any, float, dict[str, float]]] = {
    "sgd": (torch.optim.SGD, 0.05, {}),
    "momentum": (torch.optim.SGD, 0.05, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, 1e-3, {}),
    "adamw": (torch.optim.AdamW, 1e-3, {}),
    "rmsprop": (torch.optim.RMSprop, 1e-4, {}),
}
PUBLIC = 400

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


def keep(folder: Path, name: str, steps: int, x: Tensor, y: Tensor, seed: int) -> None:
    """Train a client from the task's network, and keep what it sends."""
    make, lr, settings = OPTIMIZERS[name]
    space: dict[str, Any] = {}
    exec(TASK.format(seed=seed), space)
    model: nn.Module = space["net"]()
    before = {name: leaf.detach().clone() for name, leaf in model.state_dict().items()}
    optimizer = make(model.parameters(), lr=lr, **settings)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    local = LocalTraining(lr=lr, batch_size=len(x), epochs=steps)
    Keeper(folder / "kept", training=local).keep(
        Exchange(1, "0", before, dict(model.state_dict()), examples=len(x))
    )


def one(folder: Path, name: str, steps: int, batch: int, seed: int, *more: str) -> dict[str, Any]:
    """Return what the command says of a client's update."""
    folder.mkdir(parents=True, exist_ok=True)
    images = cifar10(side=16)
    x = torch.as_tensor(images.pixels).float() / 255
    y = torch.as_tensor(images.frame["y"].to_numpy("int64")).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 + seed))
    mine, public = order[:batch], order[-PUBLIC:]
    rows = torch.cat([mine, public])
    client = torch.cat([torch.ones(batch), torch.zeros(PUBLIC)]).long()
    torch.save({"x": x[rows], "y": y[rows], "client": client}, folder / "records.pt")
    (folder / "optimizers_task.py").write_text(TASK.format(seed=seed))
    keep(folder, name, steps, x[mine], y[mine], seed)
    words = ["federation", "kept", "--task", "optimizers_task:task", "--ask", "reconstruction"]
    ended = subprocess.run(
        [sys.executable, "-m", "leakgauge", *words, "--json", "--out", "run", *more],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(ended.stdout)["reconstruction"]
    labels = json.loads((folder / "run/cells/federation/clients.json").read_text())[0]["labels"]
    wrong = torch.tensor(labels).bincount(minlength=10) - y[mine].bincount(minlength=10)
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
