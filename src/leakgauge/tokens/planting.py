"""Plants a known leak in pairs without one, to find the smallest leak that an estimate sees."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor

from leakgauge.tokens.fitting import Scaler
from leakgauge.tokens.sources import Pairs, PairSource, PairSplit

SAMPLE = 1024
"""Number of pairs, or rows, that the planted directions are found on."""


@dataclass(frozen=True, eq=False)
class Leak:
    """A leak of known size: one direction of the gradients says one direction of the features.

    Both directions are those of the largest variance, and the rest of the gradient belongs to other
    data, so no leak of that size is easier to see. The information of features and gradients is
    the given one if the direction of the features is Gaussian, and at most that otherwise.

    Attributes:
        nats: information of the leak.
        scaler: scaler of features and gradients.
        of_features: direction that gives a feature of variance 1 ``[d]``.
        of_gradients: unit direction of the standardised gradients, by layer ``[p]``.
        size: standard deviation of the gradients in that direction.
    """

    nats: float
    scaler: Scaler
    of_features: Tensor
    of_gradients: Mapping[str, Tensor]
    size: float

    @classmethod
    def like(cls, pairs: Pairs, nats: float) -> "Leak":
        """Return a leak with the directions of some pairs."""
        scaler = Scaler.of(pairs, raw=False)
        scaled = scaler(pairs)
        of_features, width = _leading(scaled.features)
        whole, size = _leading(torch.cat(list(scaled.gradients.values()), dim=1))
        sizes = [leaf.shape[1] for leaf in pairs.gradients.values()]
        parts = dict(zip(pairs.gradients, torch.split(whole, sizes), strict=True))
        return cls(nats, scaler, of_features / max(width, 1e-12), parts, size)

    def into(self, pairs: Pairs, generator: torch.Generator) -> Pairs:
        """Return unmatched pairs with the leak; the generator draws its noise."""
        scaled, deviation = self.scaler(pairs), self.scaler.deviation.gradients
        told = scaled.features @ self.of_features
        noise = torch.randn(told.shape, generator=generator).to(told)
        rho = math.sqrt(1 - math.exp(-2 * self.nats))
        wanted = self.size * (rho * told + math.sqrt(1 - rho**2) * noise)
        parts = ((scaled.gradients[name] @ one) for name, one in self.of_gradients.items())
        change = wanted - torch.stack(list(parts)).sum(0)
        gradients = {
            name: leaf + change[:, None] * self.of_gradients[name] * deviation[name]
            for name, leaf in pairs.gradients.items()
        }
        return Pairs(pairs.features, gradients)


@dataclass(frozen=True, eq=False)
class PlantedPairs:
    """A source with a planted leak, and nothing else that leaks.

    Attributes:
        source: source of the features, and of the gradients of other data.
        nats: information of the leak.
        seed: seed of the leak's noise in ``rows``.
        in_pairs: returns the leak of drawn pairs, of any size.
        in_rows: returns that of at most so many rows.
    """

    source: PairSource
    nats: float
    seed: int
    in_pairs: Callable[[], Leak]
    in_rows: Callable[[int], Leak]

    @property
    def block(self) -> int | None:
        """Number of consecutive rows that share records; None if no two rows do."""
        return self.source.block

    @property
    def rows_are_records(self) -> bool:
        """Whether ``rows`` returns records."""
        return self.source.rows_are_records

    def draw(self, count: int, generator: torch.Generator, *, matched: bool = True) -> Pairs:
        """Return random pairs with the leak; ``matched`` changes nothing else."""
        return self._of(self.source.draw(count, generator, matched=False), generator, matched)

    def groups(
        self, size: int, most: int, generator: torch.Generator, *, matched: bool = True
    ) -> Iterator[list[Pairs]]:
        """Yield blocks of groups of pairs with the leak."""
        for block in self.source.groups(size, most, generator, matched=False):
            yield [self._of(one, generator, matched) for one in block]

    def rows(self, most: int, *, matched: bool = True) -> Pairs:
        """Return rows with a leak of the same size in each."""
        found = self.source.rows(most, matched=False)
        if not matched:
            return found
        leak = replace(self.in_rows(most), nats=self.nats)
        return leak.into(found, torch.Generator().manual_seed(self.seed))

    def _of(self, pairs: Pairs, generator: torch.Generator, matched: bool) -> Pairs:
        return replace(self.in_pairs(), nats=self.nats).into(pairs, generator) if matched else pairs


def planted(parts: PairSplit, nats: float, *, seed: int) -> PairSplit:
    """Return the parts with a leak of this size planted in the pairs of all three.

    Args:
        parts: pairs of the three parts; their own leak is replaced.
        nats: information of the planted leak.
        seed: seed of all random draws.
    """
    return planter(parts, seed=seed)(nats)


def planter(parts: PairSplit, *, seed: int) -> Callable[[float], PairSplit]:
    """Return ``planted`` as a function of the size; the directions of all sizes are found once."""

    @cache
    def in_pairs() -> Leak:
        rng = torch.Generator().manual_seed(seed)
        return Leak.like(parts.fitting.draw(SAMPLE, rng, matched=False), 0.0)

    def in_rows(source: PairSource, most: int) -> Leak:
        return Leak.like(source.rows(most, matched=False).rows(slice(0, SAMPLE)), 0.0)

    sources = [
        (one, cache(partial(in_rows, one)))
        for one in (parts.fitting, parts.stopping, parts.reporting)
    ]
    return lambda nats: PairSplit(
        *(PlantedPairs(one, nats, seed, in_pairs, of_rows) for one, of_rows in sources)
    )


def unseen_below(sees: Callable[[float], bool], levels: Sequence[float]) -> float:
    """Return the leak in nats below which an estimate could have seen nothing.

    It is the smallest level that is seen, by bisection, or the largest level if none is.

    Args:
        sees: whether the estimate sees a planted leak of this size.
        levels: sizes in nats, ascending.

    >>> unseen_below(lambda nats: nats > 0.15, (0.1, 0.2, 0.5))
    0.2
    >>> unseen_below(lambda nats: False, (0.1, 0.2, 0.5))
    0.5
    """
    return levels[bisect_left(levels[:-1], True, key=sees)]


def _leading(values: Tensor) -> tuple[Tensor, float]:
    """Return the unit direction of the largest variance ``[d]``, and the deviation along it."""
    centred = (values - values.mean(0)).double()
    squares, vectors = torch.linalg.eigh(centred @ centred.T)
    direction = centred.T @ vectors[:, -1]
    direction = direction / direction.norm().clamp(min=1e-300)
    size = math.sqrt(max(0.0, float(squares[-1])) / max(1, len(values) - 1))
    return direction.to(values.dtype), size
