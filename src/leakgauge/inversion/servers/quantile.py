"""Quantile biases: random weights whose units are active for one record of an update on average."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator

from leakgauge.core.checks import require_count
from leakgauge.core.types import Task
from leakgauge.inversion.methods import IMPRINT
from leakgauge.inversion.servers.reading import own_reading_layer, reading_size, with_reading
from leakgauge.inversion.servers.server import Server, ServerKnowledge, ServerTraits


@dataclass(frozen=True)
class Quantile(Server):
    """Gives the first linear layer random weights, and biases that few records pass.

    With B records in an update, each unit is active for a share 1 / B of the public records; a
    record that is active alone is the quotient of the gradients of weights and bias.

    Attributes:
        units: units of the reading layer, where the model has none of its own.

    References:
        Nowak et al., QBI: Quantile-Based Bias Initialization for Efficient Private Data
        Reconstruction in Federated Learning, 2024 (arXiv 2406.18745). The paper takes quantiles of
        a normal distribution; these are of public records.
    """

    traits: ClassVar[ServerTraits] = ServerTraits(
        does="gives the first linear layer random weights, and biases that few records pass",
        method=IMPRINT,
    )
    units: int = 1000

    def __post_init__(self) -> None:
        require_count(self.units, "units")

    def alter(self, task: Task, known: ServerKnowledge, generator: Generator) -> Task:
        """Return the task with these weights; arguments and errors as for ``Server``."""
        own = own_reading_layer(task, known.x[0])
        flat = known.x.flatten(1)
        units, width = reading_size(own, known.x, self.units)
        weight = torch.randn(units, width, generator=generator).to(flat) / width**0.5
        passed = math.ceil(len(flat) / known.records)
        bias = -(flat @ weight.T).kthvalue(max(len(flat) - passed, 1), dim=0).values
        return with_reading(task, own, known.x, weight, bias, generator)
