"""Exposure by record: the tests of all questions joined by row number, the worst record first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from leakgauge.results.record_tests import RecordTest
from leakgauge.results.statistics import Bools, Floats, Ints

LEVEL = 0.05
"""Largest corrected p value of a record that is named."""

NAMED, NOT_NAMED, NOT_ATTACKED = "named", "not named", "not attacked"


@dataclass(frozen=True)
class RecordFigure:
    """What one test found about one record.

    Attributes:
        status: ``NAMED``, ``NOT_NAMED`` or ``NOT_ATTACKED``; the others are 0 where not attacked.
        p_value: the record's p value.
        adjusted: the p value corrected for all records and tests.
        as_high: number of others with at least its score.
        others: number of others.
        figure: how much the attack learns; None without a figure.
        guess: the same without the attack; None without one.
    """

    status: str
    p_value: float = 0.0
    adjusted: float = 0.0
    as_high: int = 0
    others: int = 0
    figure: float | None = None
    guess: float | None = None


@dataclass(frozen=True)
class ExposedRecord:
    """One line of the table.

    Attributes:
        row: row in the data.
        adjusted: smallest corrected p value of its tests.
        figures: one for each test.
    """

    row: int
    adjusted: float
    figures: tuple[RecordFigure, ...]

    @property
    def named(self) -> bool:
        """Whether a test names the record above chance."""
        return any(one.status == NAMED for one in self.figures)


@dataclass(frozen=True)
class AttackOverlap:
    """The records that one test attacks, and those that no other test finds.

    Attributes:
        test: position of the test.
        attacked: number of attacked records.
        named: number of records that it names above chance.
        alone: number of those that no other test names.
        also_attacked: number of those of ``alone`` that another test attacked, too.
    """

    test: int
    attacked: int
    named: int
    alone: int
    also_attacked: int


@dataclass(frozen=True, eq=False)
class Exposure:
    """The tests of single records under one defense, joined by row number.

    Each test is corrected for its records, and then for the number of tests (Bonferroni). If
    nothing leaks, the probability that any record is named is at most ``LEVEL``; of the named
    records, at most this share is expected to be named in error.

    Attributes:
        tests: the tests, one or more, which count rows alike.
    """

    tests: tuple[RecordTest, ...]

    @property
    def defense(self) -> str:
        """The defense of the tests."""
        return self.tests[0].defense

    @property
    def numbering(self) -> str:
        """How rows are counted."""
        return self.tests[0].numbering

    @cached_property
    def rows(self) -> Ints:
        """Rows of all records that a test attacks ``[r]``, the most exposed first.

        Equal corrected p values, often 1, are ordered by the distance above the others: the p
        values themselves would favour the test with most others.
        """
        cells = [
            (test.rows, adjusted, -test.excess)
            for test, adjusted in zip(self.tests, self._adjusted, strict=True)
        ]
        rows, adjusted, excess = (np.concatenate([one[part] for one in cells]) for part in range(3))
        ordered = rows[np.lexsort((rows, excess, adjusted))]
        _, first = np.unique(ordered, return_index=True)
        return np.asarray(ordered[np.sort(first)])

    @cached_property
    def adjusted(self) -> Floats:
        """Corrected p values ``[r, tests]`` in the order of ``rows``; NaN where not attacked."""
        return self._placed(self._adjusted)

    @property
    def named(self) -> Bools:
        """Whether each test names each record ``[r, tests]``."""
        return np.nan_to_num(self.adjusted, nan=1.0) <= LEVEL

    @property
    def overlaps(self) -> list[AttackOverlap]:
        """What each test finds, alone or with others."""
        named, attacked = self.named, ~np.isnan(self.adjusted)
        alone = named & (named.sum(axis=1, keepdims=True) == 1)
        several = attacked.sum(axis=1) > 1
        return [
            AttackOverlap(
                at,
                int(attacked[:, at].sum()),
                int(named[:, at].sum()),
                int(alone[:, at].sum()),
                int((alone[:, at] & several).sum()),
            )
            for at in range(len(self.tests))
        ]

    def most(self, count: int) -> list[ExposedRecord]:
        """Return the most exposed records, at most ``count``."""
        values = self._values()
        return [
            ExposedRecord(
                int(row),
                float(np.nanmin(self.adjusted[at])),
                tuple(self._figure(values, at, test) for test in range(len(self.tests))),
            )
            for at, row in enumerate(self.rows[:count])
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return one line for each record, the most exposed first, with columns for each test."""
        named = self.named
        columns: dict[str, object] = {
            "rank": np.arange(1, len(self.rows) + 1),
            "row": self.rows,
            "defense": self.defense,
            "named": named.any(axis=1),
            "adjusted_p": np.nanmin(self.adjusted, axis=1),
        }
        values = self._values()
        for at, test in enumerate(self.tests):
            prefix = title_of(test, self.tests)
            attacked = ~np.isnan(self.adjusted[:, at])
            status = np.where(named[:, at], NAMED, NOT_NAMED)
            columns[f"{prefix}: status"] = np.where(attacked, status, NOT_ATTACKED)
            columns[f"{prefix}: adjusted_p"] = self.adjusted[:, at]
            for name in ("p_value", "as_high", "others", "figure", "guess"):
                if not np.isnan(values[name][:, at]).all():
                    columns[f"{prefix}: {name}"] = values[name][:, at]
        return pd.DataFrame(columns)

    @cached_property
    def _adjusted(self) -> list[Floats]:
        """Corrected p values of each test, in its own order."""
        return [np.minimum(one.adjusted * len(self.tests), 1.0) for one in self.tests]

    def _values(self) -> dict[str, Floats]:
        """Return the other values of all tests by name, as ``adjusted``."""
        names = ("p_value", "as_high", "others", "figure", "guess")
        return {name: self._placed([getattr(one, name) for one in self.tests]) for name in names}

    def _placed(self, values: Sequence[Floats | Ints]) -> Floats:
        """Return values of each test in the order of ``rows`` ``[r, tests]``, else NaN."""
        found = np.full((len(self.rows), len(self.tests)), np.nan)
        order = np.argsort(self.rows, kind="stable")
        for at, (test, each) in enumerate(zip(self.tests, values, strict=True)):
            if len(each):
                found[order[np.searchsorted(self.rows, test.rows, sorter=order)], at] = each
        return found

    def _figure(self, values: dict[str, Floats], at: int, test: int) -> RecordFigure:
        adjusted = float(self.adjusted[at, test])
        if np.isnan(adjusted):
            return RecordFigure(NOT_ATTACKED)
        own = {name: float(each[at, test]) for name, each in values.items()}
        figure, guess = (None if np.isnan(own[name]) else own[name] for name in ("figure", "guess"))
        status = NAMED if adjusted <= LEVEL else NOT_NAMED
        counts = int(own["as_high"]), int(own["others"])
        return RecordFigure(status, own["p_value"], adjusted, *counts, figure, guess)


def exposures(tests: Iterable[RecordTest]) -> list[Exposure]:
    """Return the tests joined by row number: one ``Exposure`` for each defense, as first found.

    Tests that count rows differently are not joined.
    """
    groups: dict[tuple[str, str], list[RecordTest]] = {}
    for one in tests:
        groups.setdefault((one.defense, one.numbering), []).append(one)
    return [Exposure(tuple(each)) for each in groups.values()]


def title_of(test: RecordTest, tests: Sequence[RecordTest]) -> str:
    """Return the question of a test, with secret and attack where several tests ask it."""
    asked = f"{test.ask} of {test.secret}" if test.secret else test.ask
    same = [one for one in tests if (one.ask, one.secret) == (test.ask, test.secret)]
    if len(same) == 1:
        return asked
    several = len({one.knowledge for one in same}) > 1
    return f"{asked}, {test.adversary}{', ' + test.knowledge if several else ''}"
