"""A record in two variants that differ in one attribute."""

import torch

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Column
from leakgauge.guarantee import Attribute, NeighbourPair

INPUTS = 6
CODES = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
SEX = Attribute(Column("sex", "category", 4, 6, ("f", "m")), ("f", "m"), CODES, among=3)


def a_pair(seed: int = 0) -> NeighbourPair:
    """Return an extreme record with gradients longer than the clips of the tests."""
    x = 3 * torch.randn(INPUTS, generator=torch_stream(seed, "x"))
    return NeighbourPair(x, torch.tensor(seed % 2), SEX)
