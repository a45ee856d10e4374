"""A network with a property in a single layer, and a network of unusual layers."""

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from leakgauge.core.types import Dataset, Schema, Task
from leakgauge.data.source import Source

WIDTH = 10


class Planted(nn.Module):
    """Network of two branches; zero weights of the property's branch hide it from the other."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(WIDTH, 8), nn.Linear(8, 2)
        self.aside = nn.Linear(1, 2, bias=False)
        for leaf in self.parameters():
            nn.init.normal_(leaf, std=0.3, generator=generator)
        nn.init.zeros_(self.aside.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x[:, :WIDTH]).relu()) + self.aside(x[:, WIDTH:])


def planted(*, seed: int, count: int = 2400, shuffled: bool = False) -> Source:
    """Return a source of records with a property ``p`` that only the layer ``aside`` sees.

    Nineteen of twenty records have label 1, so the mean slope in the outputs has a sign, and the
    gradient of ``aside`` has that of the property. ``shuffled`` shuffles the property over records.
    """
    rng = np.random.default_rng(seed)
    p = rng.integers(2, size=count)
    x = np.concatenate([rng.normal(size=(count, WIDTH)), (2.0 * p - 1)[:, None]], axis=1)
    y = (rng.random(count) < 0.95).astype(np.int64)
    given = rng.permutation(p) if shuffled else p
    data = Dataset(
        torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y), {"p": torch.from_numpy(given)}
    )
    task = Task(Planted(torch.Generator().manual_seed(seed)))
    return source_of(task, data)


def source_of(task: Task, data: Dataset, name: str = "mine:build") -> Source:
    """Return a user's own task as a source."""
    return Source(name, pd.DataFrame(), None, None, "0", task=task, dataset=data)


class Odd(nn.Module):
    """Network of an embedding, attention, a normalisation, a convolution and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.convolution = nn.Conv1d(8, 6, 3, padding=1)
        self.last = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        words = self.words(x.long())
        seen = self.norm(words + self.attention(words, words, words, need_weights=False)[0])
        return self.last(self.convolution(seen.mT).relu().mean(2))


def odd(*, seed: int, count: int = 1600, secret: str = "p", names: tuple[str, str] = ("a", "b")):
    """Return sentences of six words; those with the property use one word more often."""
    rng = np.random.default_rng(seed)
    p = rng.integers(2, size=count)
    x = rng.integers(1, 12, size=(count, 6))
    x[:, 0] = np.where(rng.random(count) < 0.7, 11 * p, x[:, 0])
    data = Dataset(
        torch.from_numpy(x.astype(np.float32)),
        torch.from_numpy((x[:, 1] > 6).astype(np.int64)),
        {secret: torch.from_numpy(p)},
        schema=Schema((), "y", ("no", "yes"), {secret: names}),
    )
    torch.manual_seed(seed)
    return source_of(Task(Odd()), data)
