"""Where gradient canaries are planted, and how they are drawn into batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import require
from leakgauge.core.rng import stream
from leakgauge.integrations.opacus_samplers import Ints, PoissonDraws, law_of
from leakgauge.results.statistics import Floats

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
        law: how the loader draws records.
        members: whether each canary is in ``[m]``.
        rate: probability of a record in a batch under Poisson sampling; None for another law.
        records: number of records, or None if the loader does not tell.
        batches: number of batches in an epoch.

    Raises:
        InputError: the loader has no number of batches, or draws in a way that is not known.
    """

    def __init__(self, loader: Any, members: NDArray[np.bool_], seed: int) -> None:
        self._generator = stream(seed, "canary", "draws")
        self.members, self._inside = members, np.flatnonzero(members)
        sampler: Any = getattr(loader, "batch_sampler", None)
        if hasattr(sampler, "max_batch_size"):  # BatchMemoryManager's, which splits batches
            sampler = sampler.sampler
        try:
            self.batches = 0 if sampler is None else len(sampler)
        except TypeError:
            self.batches = 0
        require(
            self.batches > 0,
            f"the loader is {type(loader).__name__} without a number of batches; expected the data "
            "loader that training reads from",
        )
        self.law = law_of(sampler, self.batches)
        self.rate = self.law.rate if isinstance(self.law, PoissonDraws) else None
        try:
            self.records: int | None = len(loader.dataset)
        except (AttributeError, TypeError):
            self.records = None

    def next(self, batches: int) -> Ints:
        """Return the canaries in the next batches, which make one step; some may come twice."""
        count = len(self._inside)
        times = sum(self.law.draw(count, self._generator) for _ in range(batches))
        return np.asarray(np.repeat(self._inside, times), np.int64)

    def share_of(self, batches: int) -> Floats:
        """Return the probability that a canary is drawn 0, 1, ... times in so many batches."""
        return self.law.share_of(batches)
