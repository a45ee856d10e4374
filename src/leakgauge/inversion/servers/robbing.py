"""Robbing the Fed: bins of one measurement of the records, in a layer before the model."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge.core.checks import require, require_count
from leakgauge.core.types import Task
from leakgauge.inversion.methods import IMPRINT
from leakgauge.inversion.servers.reading import with_reader
from leakgauge.inversion.servers.server import Server, ServerKnowledge, ServerTraits


@dataclass(frozen=True)
class Robbing(Server):
    """Inserts a layer whose units measure one number of a record, each from a higher value on.

    A record reaches the units up to its own bin. All units feed the model alike, so the gradients
    of two neighbouring units differ by the records of one bin; a record alone in its bin is the
    quotient of the differences of weights and bias.

    The measurement is a random direction, one of those that the paper allows. The edges of the
    bins are quantiles of public records, where the paper takes those of a normal distribution.

    Attributes:
        bins: number of units. Of B records, ``(1 - 1 / bins) ** (B - 1)`` are expected to be alone.

    References:
        Fowl et al., Robbing the Fed: Directly Obtaining Private Data in Federated Learning with
        Modified Models, ICLR 2022, section 4.
    """

    traits: ClassVar[ServerTraits] = ServerTraits(
        does="puts a linear layer before the network, whose units count the records by bins of one "
        "measurement",
        method=IMPRINT,
    )
    bins: int = 1000

    def __post_init__(self) -> None:
        require_count(self.bins, "bins")
        require(self.bins > 1, "bins is 1; expected 2 or more, since bins are compared")

    def alter(self, task: Task, known: ServerKnowledge, generator: Generator) -> Task:
        """Return the task with the layer; arguments and errors as for ``Server``."""
        flat = known.x.flatten(1)
        direction = torch.randn(flat.shape[1], generator=generator).to(flat)
        direction /= flat.shape[1] ** 0.5
        edges = self._edges(flat @ direction)
        columns = torch.randn(flat.shape[1], 1, generator=generator).to(flat)
        weight = direction.expand(self.bins, -1)
        return with_reader(task, known.x, weight, -edges, columns.expand(-1, self.bins))

    def _edges(self, measured: Tensor) -> Tensor:
        """Return the lower edge of each bin ``[bins]``; the first lies below all public records."""
        levels = torch.arange(self.bins, device=measured.device).to(measured) / self.bins
        edges = torch.quantile(measured, levels)
        edges[0] -= measured.amax() - measured.amin()
        return edges
