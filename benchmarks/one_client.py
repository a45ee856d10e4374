"""A federation of one client with images of CIFAR-10, as benchmarks of ``federation`` keep it."""

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

PUBLIC = 400
"""Images that the client does not have."""


def write_task(folder: Path, code: str, batch: int, seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """Write the auditor's task and records; return the network, and images and labels of a client.

    Args:
        folder: folder of the audit.
        code: of a module with ``net`` and ``task``, which reads ``records.pt``.
        batch: number of the client's images, 16 x 16.
        seed: draws the images.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = cifar10(side=16)
    x = torch.as_tensor(images.pixels).float() / 255
    y = torch.as_tensor(images.frame["y"].to_numpy("int64")).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1000 + seed))
    mine, public = order[:batch], order[-PUBLIC:]
    rows = torch.cat([mine, public])
    client = torch.cat([torch.ones(batch), torch.zeros(PUBLIC)]).long()
    torch.save({"x": x[rows], "y": y[rows], "client": client}, folder / "records.pt")
    (folder / "kept_task.py").write_text(code)
    space: dict[str, Any] = {}
    exec(code, space)
    return space["net"](), x[mine], y[mine]


def keep(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: list[tuple[Tensor, Tensor]],
    training: LocalTraining,
    examples: int,
) -> None:
    """Train the client by one step on each batch, and keep what it sends."""
    before = {name: leaf.detach().clone() for name, leaf in model.state_dict().items()}
    for x, y in batches:
        optimizer.zero_grad()
        loss: Tensor = nn.functional.cross_entropy(model(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
    Keeper(folder / "kept", training=training).keep(
        Exchange(1, "0", before, dict(model.state_dict()), examples=examples)
    )


def rebuilt(folder: Path, *more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the command says of the client's update, and what it keeps of it."""
    words = ["federation", "kept", "--task", "kept_task:task", "--ask", "reconstruction"]
    ended = subprocess.run(
        [sys.executable, "-m", "leakgauge", *words, "--json", "--out", "run", *more],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept = json.loads((folder / "run/cells/federation/clients.json").read_text())[0]
    return json.loads(ended.stdout)["reconstruction"], kept
