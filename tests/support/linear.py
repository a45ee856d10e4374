"""Linear models with gradients that reveal their batch, and with gradients that do not."""

import numpy as np
import torch
from torch import Tensor, nn

from leakgauge.core.types import Dataset, Task
from leakgauge.data.source import Source
from support.planted import source_of

WIDTH = 6


class Uninformative(nn.Module):
    """Model with outputs and gradients that do not depend on its records, despite ``heard``."""

    def __init__(self) -> None:
        super().__init__()
        self.heard, self.last = nn.Linear(WIDTH, 3), nn.Linear(3, 2)
        nn.init.zeros_(self.last.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.heard(x).detach() * 0 + self.heard.bias.sum() * 0 + 1)


def telling(*, seed: int = 0, count: int = 1000, users: int | None = None) -> Source:
    """Return a linear model with the batch's mean as its gradient, up to a factor."""
    data = _records(seed, count, users)
    model = nn.Linear(WIDTH, 2)
    with torch.no_grad():
        for leaf in model.parameters():
            leaf.zero_()
    return source_of(Task(model), data)


def silent(*, seed: int = 0, count: int = 1000) -> Source:
    """Return the same records with a model that has gradients independent of them."""
    torch.manual_seed(seed)
    return source_of(Task(Uninformative()), _records(seed, count, None))


def _records(seed: int, count: int, users: int | None) -> Dataset:
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(count, WIDTH)).astype(np.float32))
    y = torch.from_numpy((rng.random(count) < 0.9).astype(np.int64))
    owners = None if users is None else torch.from_numpy(rng.integers(users, size=count))
    return Dataset(x, y, users=owners)
