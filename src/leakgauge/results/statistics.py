"""Student t intervals of a mean, exact binomial intervals of a rate, means and differences.

``results.intervals`` has intervals that resample blocks of trials.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate, Histogram

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNBOUNDED = (-math.inf, math.inf)
SHARE = (0.0, 1.0)

MOST_DEVIATIONS = 8.0
"""Bound on standardised features. One that is nearly constant in the records or updates that an
attack learns from has no deviation, so that another value would rule the answer."""


def student_t(degrees: float, confidence: float = 0.95) -> float:
    """Return half the width of a two-sided Student t interval, in standard errors.

    Args:
        degrees: degrees of freedom, 1 or more.
        confidence: two-sided.

    >>> round(student_t(1), 3), round(student_t(1000), 3)
    (12.706, 1.962)
    """
    return float(special.stdtrit(degrees, 1 - (1 - confidence) / 2))


def mean_estimate(
    values: ArrayLike,
    *,
    confidence: float = 0.95,
    unit: str = "",
    bounds: tuple[float, float] = UNBOUNDED,
) -> Estimate:
    """Return the mean of independent values, with a Student t interval.

    The interval covers the mean over other records of the same kind; records of one batch are not
    fully independent. A single value has no interval: low and high are the value, and ``n`` is 1.

    Args:
        values: one value per record, shape ``[n]``.
        confidence: two-sided.
        unit: for example ``"dB"``.
        bounds: smallest and largest possible value; the interval stays within them.

    Raises:
        InputError: the values are empty or not finite.

    >>> mean = mean_estimate([1.0, 2.0, 3.0])
    >>> mean.value, round(mean.low, 3), round(mean.high, 3)
    (2.0, -0.484, 4.484)
    >>> mean_estimate([1.0, 2.0, 3.0], bounds=(0.0, np.inf)).low
    0.0
    """
    plain = np.asarray(values, dtype=np.float64)
    n, shape = plain.size, list(plain.shape)
    require(plain.ndim == 1 and n > 0, f"values are {shape}; expected [n], one for each record")
    bad = int((~np.isfinite(plain)).sum())
    require(bad == 0, f"{bad} of {n} scores are not finite; leave out what failed, and say so")
    mean = float(plain.mean())
    # This order of operations and the one in metrics.over_seeds differ in the last digit.
    reach = student_t(n - 1, confidence) * float(plain.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    low, high = max(mean - reach, bounds[0]), min(mean + reach, bounds[1])
    return Estimate(mean, low, high, n, confidence, unit)


def mean_over_starts(
    values: ArrayLike,
    starts: ArrayLike,
    *,
    confidence: float = 0.95,
    unit: str = "",
    bounds: tuple[float, float] = UNBOUNDED,
) -> Estimate:
    """Return the mean of one run's values, with an interval that also covers its random start.

    The estimand is the mean over new records and new starts, of the same number, with the same
    choice among them. Its variance is that of a mean over the records plus that of the runs' means
    between starts; the degrees of freedom are Welch and Satterthwaite's. The second part counts as
    if there were no choice: a choice by a loss that goes with the values leaves less of it. With a
    single start the interval is that of ``mean_estimate``, over records alone; with a single record
    it is over starts alone.

    Args:
        values: values of the chosen run, one per record ``[n]``.
        starts: mean of the values of each independent run ``[k]``, the chosen one among them.
        confidence: two-sided.
        unit: for example ``"dB"``.
        bounds: smallest and largest possible value; the interval stays within them.

    Raises:
        InputError: the values are empty or not finite.

    >>> wide = mean_over_starts([11.0, 12.0, 13.0], [12.0, 16.0, 14.0])
    >>> wide.value, round(wide.low, 1), round(wide.high, 1)
    (12.0, 4.2, 19.8)
    """
    mean = mean_estimate(values, confidence=confidence, unit=unit, bounds=bounds)
    between = np.asarray(starts, dtype=np.float64)
    if between.size < 2:
        return mean
    plain = np.asarray(values, dtype=np.float64)
    parts = [(float(between.var(ddof=1)), between.size - 1)]
    if plain.size > 1:
        parts.append((float(plain.var(ddof=1)) / plain.size, plain.size - 1))
    total = sum(part for part, _ in parts)
    if total == 0:
        return mean
    degrees = total**2 / sum(part**2 / free for part, free in parts)
    reach = student_t(degrees, confidence) * math.sqrt(total)
    low, high = max(mean.value - reach, bounds[0]), min(mean.value + reach, bounds[1])
    return replace(mean, low=low, high=high)


def share_estimate(values: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Return the mean of shares, as ``mean_estimate``, with an interval within 0 and 1.

    If all values are equal, Student's t sees no spread; the interval then extends by ``unseen``.

    Args:
        values: one value per record, shape ``[n]``, each from 0 to 1.
        confidence: two-sided.

    >>> share = share_estimate(np.ones(8))
    >>> round(share.low, 4), share.high
    (0.6306, 1.0)
    """
    mean = mean_estimate(values, confidence=confidence)
    reach = unseen(mean.n, confidence) if mean.low == mean.high else 0.0
    low, high = max(mean.low - reach, SHARE[0]), min(mean.high + reach, SHARE[1])
    return replace(mean, low=low, high=high)


def at_most(estimate: Estimate, most: float) -> Estimate:
    """Return an estimate whose value and interval stay below a maximum that its definition gives.

    >>> at_most(Estimate(4.1, 3.9, 4.3, 100), 4.2).high
    4.2
    """
    value, low, high = (min(end, most) for end in (estimate.value, estimate.low, estimate.high))
    return replace(estimate, value=value, low=low, high=high)


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """Return the mean of estimates; interval ends are means, as if all errors were correlated.

    >>> mean_of([Estimate(0.5, 0.4, 0.6, 10), Estimate(0.7, 0.6, 0.8, 20)])
    Estimate(value=0.6, low=0.5, high=0.7, n=30, confidence=0.95, unit='')
    """
    ends = ([getattr(one, name) for one in estimates] for name in ("value", "low", "high"))
    value, low, high = (float(np.mean(each)) for each in ends)
    return replace(estimates[0], value=value, low=low, high=high, n=sum(one.n for one in estimates))


def histogram_of(null: Floats, alternative: Floats, bins: int) -> Histogram:
    """Return the numbers of scores under both hypotheses, over common bins of equal width."""
    edges = np.histogram_bin_edges(np.concatenate([null, alternative]), bins)
    counts = (tuple(np.histogram(one, edges)[0].tolist()) for one in (null, alternative))
    return Histogram(tuple(float(f"{edge:.6g}") for edge in edges), *counts)


def clopper_pearson(wrong: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval (low, high) of a rate.

    Args:
        wrong: number of errors, 0 to ``of``.
        of: number of trials.
        confidence: two-sided.

    References:
        Clopper and Pearson, The use of confidence or fiducial limits, Biometrika 1934.

    >>> [round(end, 4) for end in clopper_pearson(1, 10)]
    [0.0025, 0.445]
    """
    upper = float(clopper_pearson_upper(np.array([wrong]), of, confidence)[0])
    # The lower end is one minus the upper end of the rate of successes.
    lower = 1 - float(clopper_pearson_upper(np.array([of - wrong]), of, confidence)[0])
    return lower, upper


def clopper_pearson_upper(wrong: Ints, of: int, confidence: float = 0.95) -> Floats:
    """Return the upper ends of the two-sided Clopper-Pearson intervals of many rates.

    Args:
        wrong: numbers of errors ``[...]``.
        of: number of trials behind each.
        confidence: two-sided.

    Returns:
        ``[...]``; 1 where every trial is an error.

    >>> clopper_pearson_upper(np.array([0, 8]), 8).round(4).tolist()
    [0.3694, 1.0]
    """
    side = (1 - confidence) / 2
    upper: Floats = special.betaincinv(wrong + 1, np.maximum(of - wrong, 1), 1 - side)
    return np.where(wrong == of, 1.0, upper)


def unseen(n: float, confidence: float = 0.95) -> float:
    """Return the largest error rate that is consistent with n trials without an error.

    This is the two-sided Clopper-Pearson upper end at 0 errors, in closed form.

    >>> round(unseen(8), 4), round(unseen(100), 4)
    (0.3694, 0.0362)
    """
    return float(1 - ((1 - confidence) / 2) ** (1 / n))


def has_interval(estimate: Estimate) -> bool:
    """Return whether the two ends differ; a single record and a count have no interval.

    >>> has_interval(Estimate(20.0, 20.0, 20.0, n=1)), has_interval(Estimate(0.9, 0.8, 1.0, n=50))
    (False, True)
    """
    return estimate.low < estimate.high


def difference(before: Estimate, after: Estimate) -> Estimate:
    """Return ``after`` minus ``before`` with an interval, for two independent estimates.

    Runs keep no scores of single trials, so two audits cannot be compared trial by trial. Their
    intervals are enough: MOVER ("method of variance estimates recovery") takes from each interval
    the distance between the value and the relevant end, and adds the two in quadrature. Intervals
    may be asymmetric, as those near 0 or 1 are, and the result never leaves the possible range.

    Audits of the same data and seed share records and trials, which mostly moves both figures
    alike. The interval is then wider than necessary, and covers the true difference more often than
    its confidence says.

    Args:
        before: a figure with its interval.
        after: the same figure of another run, with an interval of the same confidence.

    Returns:
        An estimate whose ``n`` is the smaller one.

    Raises:
        InputError: the two have intervals of different confidence.

    References:
        Newcombe, Interval estimation for the difference between independent proportions,
        Statistics in Medicine 1998, method 10; Zou and Donner, Construction of confidence limits
        about effect measures, Statistics in Medicine 2008, equation 2.

    >>> found = difference(Estimate(0.9, 0.86, 0.93, n=200), Estimate(0.6, 0.53, 0.64, n=200))
    >>> round(found.value, 3), round(found.low, 4), round(found.high, 4)
    (-0.3, -0.3762, -0.2434)
    """
    require(
        before.confidence == after.confidence,
        f"the intervals have a confidence of {before.confidence:g} and {after.confidence:g}; "
        "expected the same",
    )
    value = after.value - before.value
    below = math.hypot(after.value - after.low, before.high - before.value)
    above = math.hypot(after.high - after.value, before.value - before.low)
    count = min(before.n, after.n)
    return Estimate(value, value - below, value + above, count, after.confidence, after.unit)


def no_difference(one: Estimate) -> Estimate:
    """Return the difference between a figure and itself, exactly 0, for two equal runs."""
    return Estimate(0.0, 0.0, 0.0, one.n, one.confidence, one.unit)


def within_deviations(standardised: Floats) -> Floats:
    """Clip standardised features ``[n, D]`` in place to ``MOST_DEVIATIONS``.

    >>> within_deviations(np.array([[-1.0, 2000.0]])).tolist()
    [[-1.0, 8.0]]
    """
    return np.clip(standardised, -MOST_DEVIATIONS, MOST_DEVIATIONS, out=standardised)
