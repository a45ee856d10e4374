"""Which records make the secret of their batches easier to name?

A trial is a batch of records with one secret, and its odds say how surely an attack names each
secret. A record that dominates its batches moves the odds of its secret up or down, also where
nothing is known: a coin then decides whether it moves them towards the truth. So a record counts as
exposed only next to others that nothing but chance can move as far: records with another secret,
which move the same odds, and records with its own secret, which move them down.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from leakgauge.results.record_tests import against_others
from leakgauge.results.statistics import Floats, Ints, clopper_pearson

MOST = 30.0
"""Largest size of log odds: beyond it, surer is not more."""


@dataclass(frozen=True, eq=False)
class RecordsOfTrials:
    """The records of trials, and how the trials that hold each compare with the others.

    Attributes:
        records: each record that some, but not all, trials of its kind hold ``[r]``.
        secret: code of the secret of each record's trials ``[r]``.
        p_value: p values ``[r]``, not corrected for the number of records.
        excess: distance of each record's effect above the largest of the others, in their standard
            deviations ``[r]``.
        others: number of those others ``[r]``.
        figure: share of a record's trials whose secret is named right ``[r]``.
        guess: the same of the other trials of its kind ``[r]``.
    """

    records: Ints
    secret: Ints
    p_value: Floats
    excess: Floats
    others: Ints
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
    odds: Floats, truth: Ints, right: Floats, rows: Ints, block: Ints
) -> RecordsOfTrials:
    """Return how exposed each record is by the trials that hold it.

    The effect of a record on the odds of a secret is the sum over its trials, less the mean of
    their kind (block and secret), in standard deviations over random deals of the odds to the
    trials. The p value of a record with secret v is the larger one of two conformal ones: the rank
    of its effect on the odds of v among those of records with other secrets, and among the effects
    on the odds of v, with the other sign, of records with secret v. Where secrets are independent
    of the records, the first is valid if all records are in as many trials, and the second if
    effects are as often upwards as downwards; the larger one is valid if either is.

    Args:
        odds: log odds of each secret ``[n, V]``.
        truth: code of each trial's secret ``[n]``; no record is in trials of two secrets.
        right: whether the secret is named right ``[n]``, a share where secrets tie.
        rows: records of each trial ``[n, B]``.
        block: code of each trial's block ``[n]``.

    References:
        Vovk, Gammerman and Shafer, Algorithmic Learning in a Random World, 2005 (the p value);
        Barber and Candes, Annals of Statistics 2015 (effects with the other sign as a reference).
    """
    values = odds.shape[1]
    table = _Table.of(rows, block * values + truth)
    secret = table.secrets(truth)
    p_value, excess = np.ones(len(secret)), np.zeros(len(secret))
    others = np.zeros(len(secret), dtype=np.int64)
    for value in np.unique(secret):
        own = secret == value
        effect = table.effects(np.clip(odds[:, value], -MOST, MOST))
        p, far = against_others(effect[own], -effect[own])
        n = int(own.sum())
        p, number = np.minimum(p * (n + 1) / n, 1.0), np.full(n, n - 1)  # without the record itself
        if n < len(own):
            crossed, beyond = against_others(effect[own], effect[~own])
            larger = crossed >= p
            p, far = np.where(larger, crossed, p), np.where(larger, beyond, far)
            number = np.where(larger, len(own) - n, number)
        p_value[own], excess[own], others[own] = p, far, number
    figure, guess = table.shares(right)
    return RecordsOfTrials(table.records, secret, p_value, excess, others, figure, guess)


def worst_record(score: Floats, right: Floats, rows: Ints, kind: Ints) -> WorstRecord | None:
    """Return the worst record as chosen on one half of the trials and evaluated on the other.

    The largest of many figures is large by chance; the half that did not choose is unbiased. None
    where no record is in both halves.

    Args:
        score: log odds of the true secret of each trial ``[n]``.
        right: as for ``records_of_trials``.
        rows: records of each trial ``[n, B]``.
        kind: code of each trial's block and secret ``[n]``.
    """
    order = np.argsort(kind, kind="stable")
    first, second = order[::2], order[1::2]
    table = _Table.of(rows[first], kind[first])
    both = np.isin(table.records, rows[second])
    if not both.any():
        return None
    effect = table.effects(np.clip(score[first], -MOST, MOST))
    record = int(table.records[int(np.argmax(np.where(both, effect, -np.inf)))])
    holds = (rows[second] == record).any(axis=1)
    alike = np.isin(kind[second], kind[second][holds]) & ~holds
    own, n = right[second][holds], int(holds.sum())
    low, _ = clopper_pearson(int(np.floor(own.sum())), n)
    _, high = clopper_pearson(int(np.ceil(own.sum())), n)
    guess = float(right[second][alike].mean()) if alike.any() else float("nan")
    return WorstRecord(record, float(own.mean()), low, high, n, guess)


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

    def secrets(self, truth: Ints) -> Ints:
        """Return the secret of each record's trials ``[r]``."""
        return np.asarray(truth[self.holds.indices[self.holds.indptr[:-1]]])

    def effects(self, score: Floats) -> Floats:
        """Return the sum of each record's scores less the mean of their kind ``[r]``.

        It is in standard deviations over deals of the scores to the trials of a kind.
        """
        mean = np.bincount(self.kind, weights=score) / self.sizes
        centred = score - mean[self.kind]
        sums, spread = np.asarray(self.holds @ centred), self._spread(centred)
        return np.asarray(np.divide(sums, spread, out=np.zeros_like(sums), where=spread > 0))

    def _spread(self, centred: Floats) -> Floats:
        """Return the standard deviation over deals of the sum of each record's scores ``[r]``."""
        squares = np.bincount(self.kind, weights=centred**2)
        each = squares / (self.sizes * np.maximum(self.sizes - 1, 1))
        held, kind = self.of_kind.data, self.of_kind.indices
        return np.sqrt(_by_row(self.of_kind, held * (self.sizes[kind] - held) * each[kind]))

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
