"""Where gradient canaries are planted, and how they are drawn into batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.results.statistics import Floats

Ints = NDArray[np.int64]

EACH = 4
"""Canaries that each parameter gets first, so that each layer shows how it is clipped."""
READ = 64
"""Coordinates of each parameter that are read at least, so that each layer shows its noise."""


def places_of(sizes: Sequence[int], canaries: int, seed: int) -> Ints:
    """Return coordinates of the flat parameters: those of canaries, then further ones to read.

    Args:
        sizes: number of coordinates of each parameter.
        canaries: m, at most the sum of the sizes.
        seed: seed of the coordinates.

    Returns:
        ``[m + more]``, all different.
    """
    generator, starts = stream(seed, "canary", "places"), np.cumsum([0, *sizes])

    def within(k: int, number: int) -> Ints:
        chosen = generator.choice(sizes[k], min(sizes[k], number), replace=False)
        return np.asarray(starts[k] + chosen, np.int64)

    first = np.concatenate([within(k, EACH) for k in range(len(sizes))])
    first = first if len(first) <= canaries else first[:0]
    wanted = min(int(starts[-1]), canaries + len(first))
    others = generator.choice(int(starts[-1]), wanted, replace=False)
    others = others[~np.isin(others, first)][: canaries - len(first)]
    found = np.concatenate([first, others])
    of = np.searchsorted(starts, found, side="right") - 1
    for k in range(len(sizes)):
        there = int((of == k).sum())
        if there < READ:
            more = within(k, READ + there)
            found = np.append(found, more[~np.isin(more, found)][: READ - there])
    return np.asarray(found, np.int64)


class Draws:
    """Draws the canaries of each batch as the loader draws records.

    Attributes:
        rate: probability of a record in a batch; None if each epoch has each record once.
        records: number of records, or None if the loader does not tell.
        batches: number of batches in an epoch.
    """

    def __init__(self, loader: Any, members: NDArray[np.bool_], seed: int) -> None:
        self._generator = stream(seed, "canary", "draws")
        self._members = np.flatnonzero(members)
        sampler: Any = getattr(loader, "batch_sampler", None)
        if hasattr(sampler, "max_batch_size"):  # BatchMemoryManager's, which splits batches
            sampler = sampler.sampler
        self.rate: float | None = getattr(sampler, "sample_rate", None)
        try:
            self.batches = len(loader if sampler is None else sampler)
        except TypeError:
            self.batches = 0
        require(
            self.batches > 0,
            f"the loader is {type(loader).__name__} without a number of batches; expected the data "
            "loader that training reads from",
        )
        try:
            self.records: int | None = len(loader.dataset)
        except (AttributeError, TypeError):
            self.records = None
        self._position, self._of_epoch = self.batches, np.zeros(0, np.int64)

    def next(self, batches: int) -> Ints:
        """Return the canaries in the next batches, which make one step; some may come twice."""
        return np.concatenate([self._batch() for _ in range(batches)])

    def share_of(self, batches: int) -> Floats:
        """Return the probability that a canary is drawn 0, 1, ... times in so many batches."""
        if self.rate is not None:
            most = int(stats.binom.isf(1e-12, batches, self.rate)) + 1
            return np.asarray(stats.binom.pmf(np.arange(most + 1), batches, self.rate))
        epochs, more = divmod(batches, self.batches)
        found = np.zeros(epochs + 2)
        found[epochs:] = 1 - more / self.batches, more / self.batches
        return found

    def _batch(self) -> Ints:
        if self.rate is not None:  # Poisson sampling
            drawn = self._generator.random(len(self._members)) < self.rate
            return np.asarray(self._members[drawn], np.int64)
        if self._position == self.batches:  # a shuffled epoch has each record once
            self._position = 0
            self._of_epoch = self._generator.integers(self.batches, size=len(self._members))
        self._position += 1
        return np.asarray(self._members[self._of_epoch == self._position - 1], np.int64)
