"""Mixes: the records of a batch, given its secret.

Each record has a value (its sex, for example). In property and attribute inference all records of a
batch share one value, which is the secret; in proportion inference (the paper's distributional
inference) the secret is the range in which the share of records with value 1 lies.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from leakgauge.core.checks import require, require_choice, require_count
from leakgauge.inference.words import COUNT_RULES, FLOOR
from leakgauge.results.statistics import Ints


class Mix(ABC):
    """The values of a secret and the batches that each value gives.

    Attributes:
        values: m, number of values of the secret.
    """

    values: int

    @property
    def record_values(self) -> int:
        """v, number of values of a record: by default 2, with the property or without it."""
        return 2

    def names(self, record_names: Sequence[str]) -> tuple[str, ...]:
        """Return the secret's values ``[m]`` in words, by default those of the records ``[v]``."""
        return tuple(record_names)

    @abstractmethod
    def counts(self, secret: Ints, batch_size: int, rng: np.random.Generator) -> Ints:
        """Return the records of each value ``[n, v]`` in batches with the secrets ``[n]``."""

    @abstractmethod
    def secret_of(self, codes: Ints) -> Ints:
        """Return the secrets ``[n]`` of batches whose records have the values ``[n, B]``."""


@dataclass(frozen=True)
class Pure(Mix):
    """All records of a batch have the secret as their value (Li et al., section 3.2).

    >>> Pure(2).counts(np.array([0, 1]), 4, np.random.default_rng(0)).tolist()
    [[4, 0], [0, 4]]
    """

    values: int

    @property
    def record_values(self) -> int:
        """v = m: a batch has the value of its records."""
        return self.values

    def counts(self, secret: Ints, batch_size: int, rng: np.random.Generator) -> Ints:
        """Return B records of the secret's value and none of the others; draw nothing."""
        return batch_size * np.eye(self.values, dtype=np.int64)[secret]

    def secret_of(self, codes: Ints) -> Ints:
        """Return the value of the first record, which all records of the batch share."""
        return codes[:, 0]


@dataclass(frozen=True)
class Half(Mix):
    """The property is in half of the records of a batch, or in none.

    Mo et al., 2021, do not state the share of records with the property.

    >>> Half().counts(np.array([0, 1]), 5, np.random.default_rng(0)).tolist()
    [[5, 0], [3, 2]]
    """

    values = 2

    def counts(self, secret: Ints, batch_size: int, rng: np.random.Generator) -> Ints:
        """Return half of the records with value 1 where the secret is 1; draw nothing."""
        having = secret * (batch_size // 2)
        return np.stack([batch_size - having, having], axis=1)

    def secret_of(self, codes: Ints) -> Ints:
        """Return whether any record has the property."""
        return np.asarray(codes.any(axis=1), dtype=np.int64)


@dataclass(frozen=True)
class Ratio(Mix):
    """The secret is the range of the share alpha of records with value 1 (Li et al., section 3.2).

    The m ranges are {0}, (0, 1/(m-1)], ..., ((m-2)/(m-1), 1]. A batch of B records draws alpha
    uniformly within its range and takes floor(alpha B) records with value 1, as the paper prints
    it. That count can be below its range: for B = 128 and the range (0, 0.2], one batch in 25.6
    has no record with value 1 and equals a batch of the range {0}. The rule ``"within"``, which is
    not in the paper, raises such a count to the smallest one within the range, so that every batch
    identifies its range.

    Attributes:
        values: m, at least 2; 6 in section 5.1.4.
        rule: ``"floor"``, as in the paper, or ``"within"``.

    Raises:
        InputError: m is below 2, the rule is unknown, or (on use) a batch is too small for m.

    References:
        Li et al., CCS 2024, sections 3.1 (ranges), 4.1 (counts) and 5.1.4.

    >>> Ratio(6).names(["Female", "Male"])[:3]
    ('Male: none', 'Male: up to 20 %', 'Male: 20 to 40 %')
    """

    values: int = 6
    rule: str = FLOOR

    def __post_init__(self) -> None:
        require_count(self.values, "number of ranges of the share")
        require(self.values >= 2, f"{self.values} ranges of the share; expected 2 or more")
        require_choice(self.rule, "rule of the counts", COUNT_RULES)

    def names(self, record_names: Sequence[str]) -> tuple[str, ...]:
        """Return the ranges, in percent of the records that have the second value."""
        ends = [f"{100 * j / (self.values - 1):.3g}" for j in range(self.values)]
        inner = [f"{low} to {high} %" for low, high in pairwise(ends[1:])]
        ranges = ["none", f"up to {ends[1]} %", *inner]
        return tuple(f"{record_names[1]}: {one}" for one in ranges)

    def check(self, batch_size: int) -> None:
        """Refuse a batch that is too small to distinguish the ranges.

        Raises:
            InputError: the batch is too small; the message names the smallest one.
        """
        need = self.values if self.rule == FLOOR else self.values - 1
        require(
            batch_size >= need,
            f"a batch of {batch_size} records cannot distinguish {self.values} ranges of a share; "
            f"raise --batch-size to at least {need}, or lower --ratio-bins",
        )

    def counts(self, secret: Ints, batch_size: int, rng: np.random.Generator) -> Ints:
        """Return counts for an alpha drawn within the range of each secret."""
        self.check(batch_size)
        alpha = np.maximum(secret - rng.random(len(secret)), 0) / (self.values - 1)
        having = np.floor(alpha * batch_size).astype(np.int64)
        if self.rule != FLOOR:
            most = self._most(batch_size)
            least = np.append(0, most[:-1] + 1)
            having = np.clip(having, least[secret], most[secret])
        return np.stack([batch_size - having, having], axis=1)

    def secret_of(self, codes: Ints) -> Ints:
        """Return the range of each batch's share; under the rule ``"floor"`` the most probable one.

        Under ``"floor"`` a count c comes from any alpha B in [c, c + 1), so most probably from the
        range with the larger part of it; a count of 0 most probably means {0}.
        """
        count = codes.sum(axis=1)
        if self.rule != FLOOR:
            return np.asarray(np.searchsorted(self._most(codes.shape[1]), count), dtype=np.int64)
        step = np.arange(self.values)
        found = np.searchsorted(2 * step * codes.shape[1], (2 * count + 1) * (self.values - 1))
        return np.where(count == 0, 0, np.minimum(found, self.values - 1)).astype(np.int64)

    def _most(self, batch_size: int) -> Ints:
        """Return the largest count ``[m]`` within each range, in whole numbers.

        In floating point, 0.2 * 5 is not always 1.
        """
        return np.arange(self.values, dtype=np.int64) * batch_size // (self.values - 1)


def bootstrap(members: Sequence[Ints], counts: Ints, rng: np.random.Generator) -> Ints:
    """Return batches ``[n, B]`` of records drawn with replacement.

    Args:
        members: the records of each value.
        counts: number of records of each value in each batch ``[n, v]``; every row sums to B.
        rng: generator of the draws.
    """
    n, values = counts.shape
    batch_size = int(counts[0].sum()) if n else 0
    value = np.repeat(np.tile(np.arange(values), n), counts.ravel()).reshape(n, batch_size)
    rows = np.empty((n, batch_size), dtype=np.int64)
    for one, records in enumerate(members):
        chosen = value == one
        rows[chosen] = rng.choice(records, size=int(chosen.sum())) if chosen.any() else 0
    return rows
