"""Make kept updates of small federations, and the task of their auditor."""

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
    names: Sequence[str] = (),
    run: str = "",
    into: str = "kept",
) -> str:
    """Run a federation, keep its updates in ``kept``, and write the auditor's module.

    Args:
        folder: folder of the updates and of the module.
        layers: layers of the network, as code; ``nn`` is ``torch.nn``.
        clients: records and labels of each client.
        public: records and labels that no client has.
        protocol: protocol of the training.
        secrets: secrets of all records by name, those of clients first.
        config: numbers that the server sends to clients.
        claimed: records that the auditor attributes to the clients, by default theirs.
        names: names of the clients, by default their positions.
        run: identity of the run.
        into: folder of the updates in ``folder``.

    Returns:
        Name of the module in ``folder``.
    """
    torch.manual_seed(0)
    task = Task(eval(f"nn.Sequential({layers})", {"nn": nn}))
    people = [Participant(Dataset(*one)) for one in clients]
    keeper = Keeper(folder / into)
    for one_round in federation(task, State.of(task.model), people, protocol, seed=0):
        for who in one_round.sent:
            count = len(clients[who][0])
            received, sent = one_round.received[who], one_round.uploaded(who)
            name = names[who] if names else str(who)
            keeper.keep(
                Exchange(
                    one_round.number, name, received, sent, examples=count, config=config, run=run
                )
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
