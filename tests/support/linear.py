"""A linear model whose gradients give their batch away, and one whose gradients do not."""

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from support.planted import source_of

WIDTH = 6


class Deaf(nn.Module):
    """A linear model that does not hear its records; ``heard`` takes part by name alone."""

    def __init__(self) -> None:
        super().__init__()
        self.heard, self.last = nn.Linear(WIDTH, 3), nn.Linear(3, 2)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.heard(x).detach() * 0 + self.heard.bias.sum() * 0 + 1)


def telling(*, seed: int = 0, count: int = 1000, users: int | None = None) -> Source:
    """Records of one label and a linear model: its gradient is the batch's mean, up to a factor."""
    data = _records(seed, count, users)
    model = nn.Linear(WIDTH, 2)
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.zero_()
    return source_of(Task(model), data)


def silent(*, seed: int = 0, count: int = 1000) -> Source:
    """The same records, and a model whose gradients do not depend on them."""
    torch.manual_seed(seed)
    return source_of(Task(Deaf()), _records(seed, count, None))


def _records(seed: int, count: int, users: int | None) -> Dataset:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(count, WIDTH)).astype(np.float32))
    y = torch.from_numpy((rng.random(count) < 0.9).astype(np.int64))
    owners = None if users is None else torch.from_numpy(rng.integers(users, size=count))
    return Dataset(x, y, users=owners)
