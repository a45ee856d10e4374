"""How a data loader draws records into batches, so that canaries are drawn in the same way.

| sampler | law of a canary |
|---|---|
| Poisson sampling of Opacus | in each batch with the sampling rate |
| shuffled (``RandomSampler``, ``SubsetRandomSampler``) | one place in each epoch, drawn anew |
| in order (``SequentialSampler``) | one place, the same in each epoch |
| with replacement (``RandomSampler(replacement=True)``) | each place of a batch is its own with \
the same probability |
| weighted with replacement (``WeightedRandomSampler``) | the same, with the probability of the \
record with the largest weight |

Others, such as groups or weights without replacement, are refused.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from leakgauge.core.checks import InputError, require
from leakgauge.results.statistics import Floats

Ints = NDArray[np.int64]


class SamplingLaw(Protocol):
    """How often each canary is in a batch."""

    def draw(self, count: int, generator: np.random.Generator) -> Ints:
        """Return how often each of ``count`` canaries is in the next batch ``[count]``."""
        ...

    def share_of(self, batches: int) -> Floats:
        """Return the probability of 0, 1, ... draws of a canary in so many batches."""
        ...


@dataclass(frozen=True)
class PoissonDraws:
    """Draws each record into each batch with a probability.

    Attributes:
        rate: the probability.
    """

    rate: float

    def draw(self, count: int, generator: np.random.Generator) -> Ints:
        """Return 0 or 1 for each canary."""
        return np.asarray(generator.random(count) < self.rate, np.int64)

    def share_of(self, batches: int) -> Floats:
        """Return the binomial law of the draws."""
        return _binomial(batches, self.rate)


class ReplacedDraws:
    """Draws each place of a batch from all records, which may come twice.

    Args:
        rate: probability that a place is a given record's.
        sizes: number of places of each batch of an epoch.
    """

    def __init__(self, rate: float, sizes: tuple[int, ...]) -> None:
        self._rate, self._sizes, self._taken = rate, sizes, 0

    def draw(self, count: int, generator: np.random.Generator) -> Ints:
        """Return a binomial number for each canary."""
        size = self._sizes[self._taken % len(self._sizes)]
        self._taken += 1
        return np.asarray(generator.binomial(size, self._rate, count), np.int64)

    def share_of(self, batches: int) -> Floats:
        """Return the binomial law of the draws."""
        epochs, more = divmod(batches, len(self._sizes))
        return _binomial(epochs * sum(self._sizes) + sum(self._sizes[:more]), self._rate)


class EpochDraws:
    """Gives each record one place in each epoch.

    Args:
        sizes: number of places of each batch of an epoch.
        places: number of places with those of a last batch that is dropped.
        again: whether places are drawn anew in each epoch.
    """

    def __init__(self, sizes: tuple[int, ...], places: int, *, again: bool) -> None:
        self._sizes, self._places, self._again = sizes, places, again
        self._at, self._of = len(sizes), np.zeros(0, np.int64)

    def draw(self, count: int, generator: np.random.Generator) -> Ints:
        """Return 0 or 1 for each canary."""
        if self._at == len(self._sizes):
            self._at = 0
            if self._again or len(self._of) != count:
                places = generator.integers(self._places, size=count)
                self._of = np.searchsorted(np.cumsum(self._sizes), places, side="right")
        self._at += 1
        return np.asarray(self._of == self._at - 1, np.int64)

    def share_of(self, batches: int) -> Floats:
        """Return the law of the draws; a record in a dropped batch is not drawn in that epoch."""
        epochs, more = divmod(batches, len(self._sizes))
        each, last = (sum(one) / self._places for one in (self._sizes, self._sizes[:more]))
        if self._again:
            law = scipy.stats.binom.pmf(np.arange(epochs + 1), epochs, each)
            return np.convolve(law, [1 - last, last])
        found = np.zeros(epochs + 2)
        found[0] = 1 - each
        found[epochs] += each - last
        found[epochs + 1] += last
        return found


def law_of(batch_sampler: Any, batches: int) -> SamplingLaw:
    """Return how a loader's batch sampler draws records.

    Args:
        batch_sampler: ``batch_sampler`` of a ``DataLoader``.
        batches: number of batches in an epoch.

    Raises:
        InputError: it draws in a way that is not known here.

    >>> law = law_of(BatchSampler(SequentialSampler(range(6)), 2, False), 3)
    >>> law.share_of(3).tolist()
    [0.0, 1.0, 0.0]
    """
    rate = getattr(batch_sampler, "sample_rate", None)
    if rate is not None:
        return PoissonDraws(float(rate))
    require(
        type(batch_sampler) is BatchSampler,
        f"the loader draws batches by {type(batch_sampler).__name__}, and how often it draws a "
        "record is not known here; expected Poisson sampling, or a loader with batch_size",
    )
    sampler, size = batch_sampler.sampler, int(batch_sampler.batch_size)
    places = len(sampler)
    sizes = tuple(min(size, places - first) for first in range(0, places, size))[:batches]
    if type(sampler) is WeightedRandomSampler and sampler.replacement:
        weights = np.asarray(sampler.weights, float)
        return ReplacedDraws(float(weights.max() / weights.sum()), sizes)
    if type(sampler) is RandomSampler and sampler.replacement:
        return ReplacedDraws(1 / len(sampler.data_source), sizes)
    once = type(sampler) is RandomSampler and sampler.num_samples == len(sampler.data_source)
    if once or type(sampler) in (SequentialSampler, SubsetRandomSampler):
        return EpochDraws(sizes, places, again=type(sampler) is not SequentialSampler)
    raise InputError(
        f"the loader draws records by {_name(sampler)}, and how often it draws one is not known "
        "here; expected Poisson sampling, shuffled epochs, or drawing with replacement"
    )


def _name(sampler: Any) -> str:
    name = type(sampler).__name__
    return name if getattr(sampler, "replacement", True) else f"{name} without replacement"


def _binomial(places: int, rate: float) -> Floats:
    most = int(scipy.stats.binom.isf(1e-12, places, rate)) + 1
    return np.asarray(scipy.stats.binom.pmf(np.arange(most + 1), places, rate))
