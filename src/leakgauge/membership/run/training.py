"""Training of the target model, and of an attacker's own models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, stream
from leakgauge.core.threads import one_thread
from leakgauge.core.types import Dataset, Params, Task
from leakgauge.defenses import Defense, none
from leakgauge.membership.spec import QUESTION, MembershipSpec
from leakgauge.training import train_epoch
from leakgauge.training.catalog import own_rate, parse_optimizer
from leakgauge.training.optimizers import Optimizing
from leakgauge.training.state import tensors_of


@dataclass(frozen=True, eq=False)
class MembershipRecipe:
    """The training of a model.

    Attributes:
        task: the initial model, in the mode in which it trains, and its loss.
        spec: epochs, batch size, rate and optimizer.
        defense: defense in every step.
    """

    task: Task
    spec: MembershipSpec
    defense: Defense = field(default_factory=none)

    def epochs(self, data: Dataset, role: str, *, start: Params | None = None) -> Iterator[Params]:
        """Yield the parameters and buffers after each epoch on ``data``.

        Args:
            data: the records to train on.
            role: name of the random stream.
            start: initial parameters and buffers; None means those of the task.

        Raises:
            InputError: training diverges.
        """
        spec = self.spec
        current = start or tensors_of(self.task)
        rate, optimizer = spec.lr, self._optimizer(spec.lr)
        for number in range(1, spec.rounds + 1):
            if number - 1 in spec.drops:
                rate /= 10
                optimizer = self._optimizer(rate)  # a new optimizer without momentum
            with one_thread():
                current = train_epoch(
                    self.task,
                    current,
                    data,
                    lr=rate,
                    batch_size=spec.batch_size,
                    rng=stream(spec.seed, QUESTION, role, number),
                    defense=None if self.defense.name == none().name else self.defense,
                    noise_seed=derive(spec.seed, self.defense.name, role, number),
                    optimizer=optimizer,
                )
            require(
                all(bool(torch.isfinite(leaf).all()) for leaf in current.values()),
                f"training diverged in epoch {number} (parameters are not finite); lower the "
                f"learning rate, now {own_rate(spec.optimizer) or rate:g}",
            )
            yield current

    def _optimizer(self, rate: float) -> Optimizing | None:
        make = parse_optimizer(self.spec.optimizer, lr=rate)
        return None if make is None else Optimizing(make)

    def last(self, data: Dataset, role: str) -> Params:
        """Return the parameters and buffers after the last epoch."""
        *_, final = self.epochs(data, role)
        return final


POINTS = 12
"""Approximate number of epochs with measured gradient norms."""

Norms = Mapping[str, NDArray[np.float64]]
"""Last-layer gradient norms of the targets ``[n]``, members first, by epoch as text."""


def measured_epochs(epochs: int) -> list[int]:
    """Return the epochs for measuring norms: dense at first, and the last one.

    >>> measured_epochs(100)
    [1, 2, 4, 5, 8, 12, 19, 28, 43, 66, 100]
    """
    return sorted({round(one) for one in np.geomspace(1, epochs, POINTS)})
