"""Kept updates of federations that are made here, and the task of their auditor."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Dataset, Task
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.training import Participant, Protocol, State
from leakgauge.training.federation import federation

TASK = '''"""The auditor's task, from a file of tensors."""

import torch

import leakgauge
from leakgauge.core.types import Dataset

def net():
    torch.manual_seed(0)
    return torch.nn.Sequential({layers})

def task():
    kept = torch.load("records.pt")
    return leakgauge.Task(net()), leakgauge.from_arrays(kept["x"], kept["y"], kept["secrets"])

def public():
    _, data = task()
    return leakgauge.Task(net()), Dataset(data.x, data.y)
'''


def keep_federation(
    folder: Path,
    layers: str,
    clients: Sequence[tuple[Tensor, Tensor]],
    public: tuple[Tensor, Tensor],
    protocol: Protocol,
    secrets: dict[str, Tensor],
    *,
    config: dict[str, float],
    claimed: Sequence[tuple[Tensor, Tensor]] | None = None,
) -> str:
    """Play a federation, keep its updates in ``kept``, and write the auditor's module.

    Args:
        folder: of both.
        layers: of the network, as code; ``nn`` is torch's.
        clients: records and labels of each client.
        public: of nobody.
        protocol: of the training.
        secrets: of all records, those of clients first.
        config: numbers that clients are told.
        claimed: the records that the auditor takes for the clients', if others.

    Returns:
        The name of the module, which lies in ``folder``.
    """
    torch.manual_seed(0)
    task = Task(eval(f"nn.Sequential({layers})", {"nn": nn}))
    people = [Participant(Dataset(*one)) for one in clients]
    keeper = Keeper(folder / "kept")
    for played in federation(task, State.of(task.model), people, protocol, seed=0):
        for who in played.sent:
            count = len(clients[who][0])
            received, sent = played.received[who], played.uploaded(who)
            keeper.keep(
                Exchange(played.number, str(who), received, sent, examples=count, config=config)
            )
    said = claimed or clients
    x = torch.cat([*(one for one, _ in said), public[0]])
    y = torch.cat([*(one for _, one in said), public[1]])
    owner = [torch.full((len(one),), at + 1) for at, (one, _) in enumerate(said)]
    client = torch.cat([*owner, torch.zeros(len(public[0]))]).long()
    torch.save({"x": x, "y": y, "secrets": {"client": client, **secrets}}, folder / "records.pt")
    name = f"auditor_{abs(hash(str(folder)))}"
    text = TASK.format(layers=layers.replace("nn.", "torch.nn."))
    (folder / f"{name}.py").write_text(text)
    return name


def normal(count: int, *shape: int, name: str) -> Tensor:
    """Return standard normal numbers ``[count, *shape]``."""
    return torch.randn(count, *shape, generator=torch_stream(0, name))
