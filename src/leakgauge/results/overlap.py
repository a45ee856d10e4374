"""Variances of means over trials that share units (records or users): the jackknife over units.

Batches that are drawn from all private records share records, so trials are not independent, and no
disjoint blocks exist. The mean of a figure over n trials is then a function of the G units. The
jackknife leaves out each unit in turn, with all trials that hold a record of it. For G independent
units, its variance is on average at least what the units contribute (Efron and Stein).

It also sees which trials chance drew: a trial without a unit is one of few if batches are large. In
a mean of n independent trials of variance s^2, this part is known: it adds, over the units,
``(G - 1) / G sum_g (1 / n_g - 1 / n) s^2``, n_g being the trials without unit g. It is subtracted,
less one standard deviation of its own chance (``sqrt(2 / (G - 1))`` of it), and what the trials
contribute in truth, ``s^2 / n``, is added. Wager, Hastie and Efron correct the jackknife of a
random forest, whose trees share records as these trials do, in the same way.

A trial is drawn for a secret value, and its batch with a mix of records that depends on it. If a
unit is left out, more trials of those values go that rarely hold it, and the mean would differ by
the mix of values alone. So means are taken within each value, and weighed by the values' trials.

The jackknife assumes that units are independent draws of one population, that the trials were drawn
independently, given the units, and that the trained model stays: no unit is left out of training.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from leakgauge.core.checks import require
from leakgauge.results.statistics import SHARE, Floats, Ints, student_t, unseen

ALL_TRIALS = (
    "a record or a user is in all trials of some secret value, so it cannot be left out for an "
    "interval; bring more private records or users, or lower --batch-size"
)


@dataclass(frozen=True, eq=False)
class Overlap:
    """The units that each trial holds.

    Attributes:
        held: whether trial i holds unit g, a sparse matrix ``[n, G]`` of ones.
        disjoint: number of trials that would hold different units: G / units per trial.
        secret: the value that each trial was drawn for ``[n]``.

    References:
        Efron and Stein, The jackknife estimate of variance, Annals of Statistics 1981.
        Wager, Hastie and Efron, Confidence intervals for random forests: the jackknife and the
        infinitesimal jackknife, JMLR 2014 (the bias of the jackknife after a bootstrap).
    """

    held: sparse.csr_array
    disjoint: float
    secret: Ints

    @classmethod
    def of(cls, units: Ints, secret: Ints | None = None) -> "Overlap":
        """Return the overlap of trials with the units ``[n, k]``; a unit may occur twice.

        Args:
            units: the units of each trial.
            secret: the value that each trial was drawn for; None for one value.

        >>> Overlap.of(np.array([[4, 7], [7, 7]])).held.toarray().tolist()
        [[1.0, 1.0], [0.0, 1.0]]
        """
        names, code = np.unique(units, return_inverse=True)
        row = np.repeat(np.arange(len(units)), units.shape[1])
        held = sparse.csr_array(
            (np.ones(code.size), (row, code.ravel())), shape=(len(units), len(names))
        )
        held.data = np.minimum(held.data, 1.0)
        disjoint = len(names) * len(units) / float(held.sum())
        return cls(held, disjoint, np.zeros(len(units), int) if secret is None else secret)

    def __getitem__(self, chosen: np.ndarray) -> "Overlap":
        """Return the overlap of some of the trials, by a mask or by positions."""
        return Overlap(self.held[chosen], self.disjoint, self.secret[chosen])

    @property
    def units(self) -> int:
        """G, the number of units."""
        return int(self.held.shape[1])

    def variance(self, values: Floats) -> float:
        """Return the variance of the mean of values, over other units and other trials.

        Args:
            values: one value for each trial ``[n]``.

        Raises:
            InputError: there is a single unit, or a unit is in all trials.

        >>> alone = Overlap.of(np.arange(100)[:, None])  # each trial has its own unit
        >>> values = np.arange(100) % 2 * 1.0
        >>> round(float(alone.variance(values) / (values.var(ddof=1) / 100)), 3)
        1.142
        """
        n, units = len(values), self.units
        require(units >= 2 and n >= 2, ALL_TRIALS)
        without, chance = np.zeros(units), 0.0
        for value in np.unique(self.secret):
            of = self.secret == value
            held, some, share = self.held[of], values[of], float(of.mean())
            left = len(some) - held.sum(axis=0)
            require(float(left.min()) > 0, ALL_TRIALS)
            without += share * (some.sum() - held.T @ some) / left
            noise = float(np.var(some, ddof=1)) if len(some) > 1 else 0.0
            chance += share**2 * float((1 / left - 1 / len(some)).sum()) * noise
        chance *= (units - 1) / units
        jackknife = (units - 1) * float(np.var(without))
        known = max(0.0, 1 - math.sqrt(2 / (units - 1))) * chance
        return float(max(jackknife - known, 0.0) + float(np.var(values, ddof=1)) / n)

    def independent(self, values: Floats, confidence: float = 0.95) -> float:
        """Return the number of independent trials that would show the mean of values as well.

        It is ``disjoint`` if all values are equal, since these do not show how trials depend on
        each other.

        Args:
            values: one value for each trial ``[n]``, for example 1 for an error.
            confidence: confidence of the interval, which is wider with few units.
        """
        n = len(values)
        if n < 2 or np.ptp(values) == 0:
            return min(float(n), self.disjoint)
        few = (student_t(n - 1, confidence) / student_t(self.units - 1, confidence)) ** 2
        return n * min(1.0, few * float(np.var(values, ddof=1)) / n / self.variance(values))

    def interval(
        self,
        value: float,
        influence: Floats,
        confidence: float = 0.95,
        bounds: tuple[float, float] = SHARE,
    ) -> tuple[float, float]:
        """Return the Student t interval of a figure, from what each trial adds to it.

        If no trial adds anything (none has an error, for example), the jackknife sees no spread;
        the interval then extends by ``unseen`` of the disjoint trials to each side.

        Args:
            value: the figure on all trials.
            influence: what each trial adds ``[n]``; its mean over some trials is how much their
                figure differs, to first order.
            confidence: two-sided.
            bounds: smallest and largest possible value.
        """
        error = math.sqrt(self.variance(influence))
        reach = student_t(self.units - 1, confidence) * error
        if reach == 0:
            reach = unseen(min(len(influence), self.disjoint), confidence) * (bounds[1] - bounds[0])
        return max(bounds[0], value - reach), min(bounds[1], value + reach)
