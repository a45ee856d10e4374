"""Pairs of data features and gradients, and their sources."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from leakgauge.core.checks import require

BLOCKS = 8
"""Largest number of blocks of records of a source."""

ROOMY = 10
"""Number of batches that a block of records holds; with fewer, batches would be much alike."""

FEWEST_BLOCKS = 4
"""Smallest number of blocks for an interval."""

STRETCH = 10
"""Consecutive pairs of a stream that go to one part, so that most have a neighbour there."""

PAST = 10
"""Number of earlier pairs of a stream whose mean is subtracted from a pair."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The data features and the gradients of N batches.

    Attributes:
        features: mean features over the records of each batch ``[N, d]``.
        gradients: flattened gradients by layer ``[N, p]``.
    """

    features: Tensor
    gradients: Mapping[str, Tensor]

    def __len__(self) -> int:
        return len(self.features)

    @property
    def bytes_of_each(self) -> int:
        """Size of one pair in bytes."""
        return sum(one[0].nbytes for one in (self.features, *self.gradients.values()))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Pairs":
        """Return the pairs with each tensor changed."""
        gradients = {name: change(leaf) for name, leaf in self.gradients.items()}
        return Pairs(change(self.features), gradients)

    def rows(self, index: Tensor | slice) -> "Pairs":
        """Return the pairs at some places."""
        return self.map(lambda leaf: leaf[index])

    def to(self, device: torch.device | str) -> "Pairs":
        """Return the pairs on another device."""
        return self.map(lambda leaf: leaf.to(device))


class PairSource(Protocol):
    """A source of pairs."""

    @property
    def block(self) -> int | None:
        """Number of consecutive rows that share records; None if no two rows do."""
        ...

    @property
    def rows_are_records(self) -> bool:
        """Whether ``rows`` returns records, which stand for batches, and not pairs."""
        ...

    def draw(self, count: int, generator: torch.Generator, *, matched: bool = True) -> Pairs:
        """Return at most ``count`` random pairs.

        Args:
            count: number of pairs.
            generator: generator of the draws.
            matched: False for the placebo, gradients of other data.
        """
        ...

    def groups(
        self, size: int, most: int, generator: torch.Generator, *, matched: bool = True
    ) -> Iterator[list[Pairs]]:
        """Yield blocks of groups of pairs; different blocks share no record.

        Args:
            size: number of pairs per group.
            most: largest number of pairs of all groups.
            generator: generator of the draws, if the source draws.
            matched: as for ``draw``.
        """
        ...

    def rows(self, most: int, *, matched: bool = True) -> Pairs:
        """Return at most ``most`` features and gradients without a draw, as pairs or records."""
        ...


@dataclass(frozen=True, eq=False)
class FixedPairs:
    """Pairs that were gathered once, ordered by time if they have one.

    The placebo gives each batch's features the gradient of a later batch.

    Attributes:
        pairs: at least two pairs.
        block: number of consecutive pairs that share records, which no other block has; None if
            no two pairs share records.
        apart: places from a pair to the gradient of its placebo.
    """

    pairs: Pairs
    block: int | None = None
    apart: int = 1
    rows_are_records: ClassVar[bool] = False

    def draw(self, count: int, generator: torch.Generator, *, matched: bool = True) -> Pairs:
        """Return distinct random pairs."""
        picked = torch.randperm(len(self.pairs), generator=generator)[:count]
        return self._at(picked, matched)

    def groups(
        self, size: int, most: int, generator: torch.Generator, *, matched: bool = True
    ) -> Iterator[list[Pairs]]:
        """Yield blocks of groups of consecutive pairs; without ``block`` a group is a block."""
        size = min(size, self.block or size)
        whole = self.block or size
        for start in range(0, min(len(self.pairs), max(most, whole)) - whole + 1, whole):
            yield [
                self._at(torch.arange(first, first + size), matched)
                for first in range(start, start + whole - size + 1, size)
            ]

    def rows(self, most: int, *, matched: bool = True) -> Pairs:
        """Return the first pairs."""
        return self._at(torch.arange(min(most, len(self.pairs))), matched)

    def _at(self, index: Tensor, matched: bool) -> Pairs:
        if matched:
            return self.pairs.rows(index)
        apart = min(self.apart, len(self.pairs) - 1)
        other = self.pairs.rows((index + apart) % len(self.pairs))
        return Pairs(self.pairs.features[index], other.gradients)


@dataclass(frozen=True, eq=False)
class PooledPairs:
    """Fresh batches from a pool of records, with means of their features and gradients.

    It requires records that do not interact. The placebo draws features and gradients from
    different batches.

    Attributes:
        records: features ``[n, d]`` and gradients ``[n, p]`` of each record.
        batch_size: number of records of a batch.
    """

    records: Pairs
    batch_size: int
    block: ClassVar[int | None] = None
    rows_are_records: ClassVar[bool] = True

    def draw(self, count: int, generator: torch.Generator, *, matched: bool = True) -> Pairs:
        """Return ``count`` fresh batches."""
        return self._of(torch.arange(len(self.records)), count, generator, matched)

    def groups(
        self, size: int, most: int, generator: torch.Generator, *, matched: bool = True
    ) -> Iterator[list[Pairs]]:
        """Yield blocks of records, each with an equal number of groups."""
        blocks = blocks_of(len(self.records), self.batch_size)
        each = max(1, most // (blocks * size))
        order = torch.randperm(len(self.records), generator=generator)
        for own in order.tensor_split(blocks):
            yield [self._of(own, size, generator, matched) for _ in range(each)]

    def rows(self, most: int, *, matched: bool = True) -> Pairs:
        """Return the first records; the placebo gives each record the gradient of the next."""
        return FixedPairs(self.records).rows(most, matched=matched)

    def _of(self, own: Tensor, count: int, generator: torch.Generator, matched: bool) -> Pairs:
        rows = self._batches(own, count, generator)
        features = _means(self.records.features, rows)
        if not matched:
            rows = self._batches(own, count, generator)
        gradients = {name: _means(leaf, rows) for name, leaf in self.records.gradients.items()}
        return Pairs(features, gradients)

    def _batches(self, own: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return the records of ``count`` batches ``[count, B]``, distinct in each batch."""
        if 2 * self.batch_size < len(own):  # a sort of all would cost more than the means
            return own[_without_repeats(count, self.batch_size, len(own), generator)]
        keys = torch.rand(count, len(own), generator=generator)
        return own[keys.argsort(1)[:, : self.batch_size]]


@dataclass(frozen=True)
class PairSplit:
    """Pairs of disjoint records: to fit a critic, to stop it, and to report it.

    Attributes:
        fitting: pairs that critics learn from.
        stopping: pairs that choose the iteration.
        reporting: pairs that the figures are computed on.
    """

    fitting: PairSource
    stopping: PairSource
    reporting: PairSource


def split_stream(pairs: Pairs) -> PairSplit:
    """Return the parts of a stream: three of five stretches fit, one stops, one reports.

    The model moves during a stream, so its pairs are compared with those just before them
    (``without_drift``). The next gradient depends on the weights that this batch moved, so the
    placebo takes a gradient further away.

    Args:
        pairs: pairs in the order of time.

    Raises:
        InputError: there are too few pairs.

    >>> parts = split_stream(Pairs(torch.zeros(110, 2), {"0": torch.zeros(110, 3)}))
    >>> [len(one.pairs) for one in (parts.fitting, parts.stopping, parts.reporting)]
    [60, 20, 20]
    """
    need = 5 * STRETCH + PAST
    require(
        len(pairs) >= need,
        f"{len(pairs)} pairs of the training are too few; expected {need} or more: train "
        "longer, or keep pairs more often",
    )
    pairs = without_drift(pairs)
    stretch = torch.arange(len(pairs)) // STRETCH % 5
    places = [stretch < 3, stretch == 3, stretch == 4]
    fitting, stopping, reporting = (
        FixedPairs(pairs.rows(one.nonzero()[:, 0]), apart=PAST + 1) for one in places
    )
    return PairSplit(fitting, stopping, reporting)


def without_drift(pairs: Pairs) -> Pairs:
    """Return the pairs from the eleventh on, each minus the mean of the ten before it.

    Features and gradients that drift with the weights have a common course, which is no leak. Given
    the earlier pairs, a shift by their mean changes no information, and jointly Gaussian pairs have
    the same information with it as without.

    Args:
        pairs: more than ten pairs in the order of time.

    >>> steps = torch.arange(12.0)[:, None]
    >>> without_drift(Pairs(steps, {})).features
    tensor([[5.5000],
            [5.5000]])
    """

    def shifted(leaf: Tensor) -> Tensor:
        sums = torch.cat([leaf.new_zeros(1, leaf.shape[1]), leaf]).cumsum(0, dtype=torch.float64)
        past = (sums[PAST:-1] - sums[: -PAST - 1]) / PAST
        return (leaf[PAST:] - past).to(leaf.dtype)

    return pairs.map(shifted)


def split_pairs(pairs: Pairs, shares: Sequence[float] = (0.6, 0.2, 0.2)) -> PairSplit:
    """Return the parts of independent pairs, in their order.

    Args:
        pairs: independent pairs.
        shares: shares of the three parts.

    >>> parts = split_pairs(Pairs(torch.zeros(100, 2), {"0": torch.zeros(100, 3)}))
    >>> [len(one.pairs) for one in (parts.fitting, parts.stopping, parts.reporting)]
    [60, 20, 20]
    """
    ends = [0, *(round(len(pairs) * end) for end in itertools.accumulate(shares))]
    parts = [pairs.rows(slice(*both)) for both in itertools.pairwise(ends)]
    require(
        min(map(len, parts)) >= 2, f"{len(pairs)} pairs are too few for three parts; bring more"
    )
    return PairSplit(*map(FixedPairs, parts))


def blocks_of(records: int, batch_size: int) -> int:
    """Return the number of blocks of records in a pool.

    >>> blocks_of(1600, 20), blocks_of(300, 20)
    (8, 4)
    """
    return max(FEWEST_BLOCKS, min(BLOCKS, records // (ROOMY * batch_size)))


def _means(values: Tensor, rows: Tensor) -> Tensor:
    """Return the mean of ``values [n, d]`` over each batch of ``rows [k, B]``."""
    return functional.embedding_bag(rows.to(values.device), values, mode="mean")


def _without_repeats(count: int, size: int, of: int, generator: torch.Generator) -> Tensor:
    """Return ``[count, size]`` numbers below ``of``, distinct in each row; redraws repeats."""
    drawn = torch.randint(of, (count, size), generator=generator)
    while True:
        ordered, place = drawn.sort(1)
        again = torch.zeros_like(drawn, dtype=torch.bool)
        again.scatter_(1, place[:, 1:], ordered[:, 1:] == ordered[:, :-1])
        if not again.any():
            return drawn
        drawn[again] = torch.randint(of, (int(again.sum()),), generator=generator)
