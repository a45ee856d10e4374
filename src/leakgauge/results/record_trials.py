"""Which records make the secret of their batches easier to name? An exact permutation test.

A trial is a batch of records with one secret, and its score says how surely an attack names the
secret. The game drew the batches at random, so if the score does not depend on who is in a batch,
all deals of the scores to the trials of one block and one secret are equally likely.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.random import Generator

from leakgauge.results.statistics import Floats, Ints, clopper_pearson

PERMUTATIONS = 999
CHUNK = 100
"""Permutations that are scored at once."""

MOST = 30.0
"""Largest size of a score: beyond it, surer is not more."""


@dataclass(frozen=True, eq=False)
class RecordsOfTrials:
    """The records of trials, and how the trials that hold each compare with the others.

    Attributes:
        records: each record that some, but not all, trials of its kind hold ``[r]``.
        p_value: p values ``[r]``, corrected for all records by the largest of them (max T).
        excess: mean score of a record's trials above that of others of its kind, in standard
            deviations ``[r]``.
        figure: share of a record's trials whose secret is named right ``[r]``.
        guess: the same of the other trials of its kind ``[r]``.
    """

    records: Ints
    p_value: Floats
    excess: Floats
    figure: Floats
    guess: Floats


@dataclass(frozen=True)
class WorstRecord:
    """The record that one half of the trials shows as most exposed, by the other half.

    Attributes:
        record: the record.
        figure: share of its trials in the other half whose secret is named right.
        low: lower end of the exact 95 % interval.
        high: upper end.
        trials: number of its trials in the other half.
        guess: share of the other trials of its kind.
    """

    record: int
    figure: float
    low: float
    high: float
    trials: int
    guess: float


def records_of_trials(
    score: Floats,
    right: Floats,
    rows: Ints,
    kind: Ints,
    *,
    rng: Generator,
    permutations: int = PERMUTATIONS,
) -> RecordsOfTrials:
    """Return how exposed each record is by the trials that hold it.

    Args:
        score: log odds of the true secret of each trial ``[n]``.
        right: whether the secret is named right ``[n]``, a share where values tie.
        rows: records of each trial ``[n, B]``.
        kind: code of each trial's block and secret ``[n]``; deals are within one kind.
        rng: draws the permutations.
        permutations: number of deals.

    References:
        Westfall and Young, Resampling-Based Multiple Testing, 1993 (single-step max T).
    """
    table = _Table.of(rows, kind)
    centred = table.centred(np.clip(score, -MOST, MOST))
    spread = table.spread(centred)
    excess = table.excess(centred[:, None], spread)[:, 0]
    largest = np.concatenate(
        [
            table.excess(np.stack([centred[table.deal(rng)] for _ in range(count)], 1), spread).max(
                0
            )
            for count in _chunks(permutations)
        ]
    )
    as_high = permutations - np.searchsorted(np.sort(largest), excess - 1e-9, side="left")
    figure, guess = table.shares(right)
    p_value = np.asarray((1 + as_high) / (permutations + 1), np.float64)
    return RecordsOfTrials(table.records, p_value, excess, figure, guess)


def worst_record(score: Floats, right: Floats, rows: Ints, kind: Ints) -> WorstRecord | None:
    """Return the worst record as chosen on one half of the trials and evaluated on the other.

    The largest of many figures is large by chance; the half that did not choose is unbiased. None
    where no record is in both halves. The arguments are those of ``records_of_trials``.
    """
    order = np.argsort(kind, kind="stable")
    first, second = order[::2], order[1::2]
    table = _Table.of(rows[first], kind[first])
    both = np.isin(table.records, rows[second])
    if not both.any():
        return None
    centred = table.centred(np.clip(score[first], -MOST, MOST))
    excess = table.excess(centred[:, None], table.spread(centred))[:, 0]
    record = int(table.records[int(np.argmax(np.where(both, excess, -np.inf)))])
    holds = (rows[second] == record).any(axis=1)
    alike = np.isin(kind[second], kind[second][holds]) & ~holds
    own, n = right[second][holds], int(holds.sum())
    low, _ = clopper_pearson(int(np.floor(own.sum())), n)
    _, high = clopper_pearson(int(np.ceil(own.sum())), n)
    guess = float(right[second][alike].mean()) if alike.any() else float("nan")
    return WorstRecord(record, float(own.mean()), low, high, n, guess)


def _chunks(count: int) -> list[int]:
    return [min(CHUNK, count - done) for done in range(0, count, CHUNK)]


@dataclass(frozen=True, eq=False)
class _Table:
    """Which trials hold which record, by kind.

    Attributes:
        records: the records ``[r]``.
        holds: whether each trial holds each record ``[r, n]``.
        kind: code of each trial's kind ``[n]``, from 0.
        of_kind: number of trials of each kind that hold each record ``[r, k]``.
        sizes: number of trials of each kind ``[k]``.
    """

    records: Ints
    holds: scipy.sparse.csr_array
    kind: Ints
    of_kind: scipy.sparse.csr_array
    sizes: Ints

    @classmethod
    def of(cls, rows: Ints, kind: Ints) -> "_Table":
        """Return the table of the records that can be compared with others."""
        names, codes = np.unique(rows, return_inverse=True)
        kinds = np.unique(kind, return_inverse=True)[1]
        trial = np.repeat(np.arange(len(rows)), rows.shape[1])
        ones = np.ones(len(trial))
        holds = scipy.sparse.csr_array(
            (ones, (codes.ravel(), trial)), shape=(len(names), len(rows))
        )
        holds.data[:] = 1.0  # a record that a batch holds twice counts once
        one_hot = scipy.sparse.csr_array((np.ones(len(rows)), (np.arange(len(rows)), kinds)))
        of_kind = scipy.sparse.csr_array(holds @ one_hot)
        sizes = np.bincount(kinds)
        left = of_kind.data * (sizes[of_kind.indices] - of_kind.data)
        able = _by_row(of_kind, left) > 0
        return cls(names[able], holds[able], kinds, of_kind[able], sizes)

    def deal(self, rng: Generator) -> Ints:
        """Return a random permutation ``[n]`` of the trials within each kind."""
        order, drawn = np.argsort(self.kind, kind="stable"), np.empty(len(self.kind), dtype=int)
        drawn[order] = np.lexsort((rng.random(len(self.kind)), self.kind))
        return drawn

    def centred(self, score: Floats) -> Floats:
        """Return the scores ``[n]`` minus the mean of their kind."""
        mean = np.bincount(self.kind, weights=score) / self.sizes
        return np.asarray(score - mean[self.kind])

    def spread(self, centred: Floats) -> Floats:
        """Return the standard deviation over deals of the sum of each record's scores ``[r]``."""
        squares = np.bincount(self.kind, weights=centred**2)
        each = squares / (self.sizes * np.maximum(self.sizes - 1, 1))
        held, kind = self.of_kind.data, self.of_kind.indices
        return np.sqrt(_by_row(self.of_kind, held * (self.sizes[kind] - held) * each[kind]))

    def excess(self, centred: Floats, spread: Floats) -> Floats:
        """Return the sum of each record's scores, in standard deviations over deals ``[r, m]``.

        Args:
            centred: scores ``[n, m]``; each column is a deal of the same ones.
            spread: the standard deviation ``[r]``.
        """
        sums = np.asarray(self.holds @ centred)
        own = spread[:, None]
        return np.asarray(np.divide(sums, own, out=np.zeros_like(sums), where=own > 0))

    def shares(self, right: Floats) -> tuple[Floats, Floats]:
        """Return the share of right trials with each record, and of the others of its kind."""
        kind, own = self.of_kind.indices, self.holds @ right
        number = _by_row(self.of_kind, self.of_kind.data)
        every = _by_row(self.of_kind, np.bincount(self.kind, weights=right)[kind])
        trials = _by_row(self.of_kind, self.sizes[kind])
        return own / number, (every - own) / np.maximum(trials - number, 1)


def _by_row(like: scipy.sparse.csr_array, data: Floats | Ints) -> Floats:
    """Return the sums by row ``[r]`` of values at the places of a sparse table."""
    rows = np.repeat(np.arange(like.shape[0]), np.diff(like.indptr))
    return np.asarray(np.bincount(rows, data, minlength=like.shape[0]), np.float64)
