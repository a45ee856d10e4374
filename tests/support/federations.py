"""Small federations, their batches, and a program that keeps their rounds."""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from leakgauge.core.types import Dataset, Task
from leakgauge.defenses import DPSGD, Defense
from leakgauge.training import Isolate, Participant, Protocol, State
from leakgauge.training.federation import Round, federation
from leakgauge.training.state import Tensors
from support.references.federation import train_locally


def network(*, batch_norm: bool = False, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(6) if batch_norm else nn.Identity()
    return nn.Sequential(
        nn.Linear(4, 6), norm, nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 3)
    ).double()


def dataset(n: int, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64) + seed
    return Dataset(x, torch.arange(n) % 3)


def people(*sizes: int) -> list[Participant]:
    return [Participant(dataset(n, seed)) for seed, n in enumerate(sizes)]


def played(
    participants: Sequence[Participant], protocol: Protocol, model: nn.Module | None = None, **more
) -> list[Round]:
    task = Task(network() if model is None else model)
    start = State.of(task.model)
    return list(federation(task, start, participants, protocol, **{"seed": 0, **more}))


def same(found: Tensors, wanted: Tensors) -> bool:
    assert found.keys() == wanted.keys()
    return all(torch.equal(found[name], leaf) for name, leaf in wanted.items())


def close(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for name, leaf in wanted.items():
        torch.testing.assert_close(found[name], leaf, rtol=0, atol=1e-6)


def sgd(lr: float):
    return lambda params: torch.optim.SGD(params, lr=lr)


def drawn(
    participant: Participant, protocol: Protocol, *, number: int, position: int = 0
) -> list[Tensor]:
    """Return the batches of a participant in a round."""
    rng = participant.turn({}, seed=0, number=number, position=position).rng
    return list(protocol.batches(len(participant), rng=rng))


def alone(
    model: nn.Module, data: Dataset, *, number: int, position: int, size: int, lr: float
) -> None:
    """Train one epoch with PyTorch's SGD, on the batches of the participant."""
    protocol = Protocol(rounds=1, batch_size=size)
    batches = drawn(Participant(data), protocol, number=number, position=position)
    train_locally(model, data, batches, sgd(lr))


def copied(state: Tensors, model: nn.Module) -> nn.Module:
    model.load_state_dict(dict(state))
    return model


def params(tensors: Tensors) -> list[str]:
    """Return the names of the tensors that are not running statistics."""
    return [name for name in tensors if "running" not in name and "num_batches" not in name]


def stochastic(rounds: int) -> tuple[Task, State, list[Participant], Protocol, Isolate]:
    """Return a federation with every kind of randomness, with buffers and isolation."""
    noisy = DPSGD(clip=1.0, noise=0.5).build(batch_size=4)
    defense = Defense("noise", update=noisy.update)
    participants = [Participant(dataset(12, seed), defense) for seed in range(4)]
    protocol = Protocol(rounds=rounds, lr=0.1, batch_size=4, share=0.75)
    task = Task(network(batch_norm=True, dropout=0.3))
    return task, State.of(task.model), participants, protocol, Isolate(1)


KEPT = 12
"""Number of rounds of the program."""


def keep_rounds(folder: Path) -> None:
    """Continue from the last state in the folder, and keep the state of each round."""
    task, state, participants, protocol, strategy = stochastic(KEPT)
    after = max((int(path.name) for path in folder.glob("[0-9]*")), default=0)
    if after:
        state = State.from_flat(load_file(folder / str(after)))
    for one in federation(
        task, state, participants, protocol, strategy=strategy, seed=0, after=after
    ):
        save_file(one.state.flat(), folder / "half")
        (folder / "half").rename(folder / str(one.number))


if __name__ == "__main__":
    keep_rounds(Path(sys.argv[1]))
