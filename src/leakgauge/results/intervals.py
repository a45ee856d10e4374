"""Intervals that resample whole blocks of trials (bootstrap), or leave out users (jackknife).

Trials of one block draw on the same records and trials of different blocks share none, so blocks
are independent and trials are not. Resampling single trials would count a record that is in many
batches as many records, and give intervals that are too narrow.

A trial of user inference is about m users. If all trials draw them from few users, almost any two
trials share a user, and no disjoint blocks exist. The score is then a function of the n users,
averaged over random groups of m of them; the jackknife leaves out each user in turn, with all
trials about this user. For independent users and any score that is symmetric in them, the
jackknife's variance is on average at least the true one for n - 1 users (Efron and Stein). What
trials share through a user counts once; the chance that drew these trials and their batches counts
(n - 1) m / (n - m) times. So the intervals are honest, and wide if trials are few: more trials
narrow them down to what few users allow.
"""

import functools
import math
import pickle
from typing import Any

import numpy as np
from scipy import special

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import SHARE, Bools, Floats, Ints, student_t, unseen

KEPT = 2**21
"""Largest number of counts that are kept for the next figure."""


def draw_blocks(count: int, replicates: int, rng: np.random.Generator) -> Floats:
    """Return how often each of ``count`` blocks is drawn, ``[replicates, count]``.

    The figures of a run resample the same blocks with equal generators. The last counts are kept
    for them, read-only, since drawing takes longer than the figure.

    >>> first, again = np.random.default_rng(0), np.random.default_rng(0)
    >>> draw_blocks(5, 3, first) is draw_blocks(5, 3, again)
    True
    >>> float(first.random()) == float(again.random())
    True
    """
    if count * replicates > KEPT:
        return _drawn(count, replicates, rng)
    drawn, rng.bit_generator.state = _kept_draws(count, replicates, pickle.dumps(rng))
    return drawn


def _drawn(count: int, replicates: int, rng: np.random.Generator) -> Floats:
    return rng.multinomial(count, np.full(count, 1 / count), size=replicates).astype(np.float64)


@functools.lru_cache(maxsize=2)
def _kept_draws(count: int, replicates: int, pickled: bytes) -> tuple[Floats, dict[str, Any]]:
    """Return the counts that a pickled generator draws, and its state afterwards."""
    rng: np.random.Generator = pickle.loads(pickled)
    drawn = _drawn(count, replicates, rng)
    drawn.setflags(write=False)
    return drawn, dict(rng.bit_generator.state)


def bootstrap_interval(
    value: float,
    replicates: Floats,
    *,
    blocks: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = SHARE,
) -> tuple[float, float]:
    """Return a percentile interval of block-bootstrap replicates, valid for few blocks too.

    The percentiles are widened like a t interval with ``blocks - 1`` degrees of freedom (expanded
    percentile interval; Hesterberg 2015, "What teachers should know about the bootstrap"). If all
    replicates are equal (no block has an error, for example), the bootstrap sees no spread; the
    interval then extends by ``unseen`` to each side.

    Args:
        value: the estimate on all trials.
        replicates: estimates on resampled blocks ``[b]``; NaN are left out.
        blocks: number of blocks that were resampled.
        confidence: two-sided.
        bounds: smallest and largest possible value.

    Raises:
        InputError: there are fewer than two blocks, or no replicate has a value.

    >>> low, high = bootstrap_interval(1.0, np.ones(1000), blocks=100)
    >>> round(low, 4), high
    (0.9638, 1.0)
    """
    replicates = replicates[np.isfinite(replicates)]
    require(
        blocks >= 2 and len(replicates) > 0,
        f"{blocks} groups of trials are too few to resample; bring more trials, or more records",
    )
    t = student_t(blocks - 1, confidence)
    widened = special.ndtr(-np.sqrt(blocks / (blocks - 1)) * t)
    low, high = np.quantile(replicates, [widened, 1 - widened])
    if low == high:
        reach = unseen(blocks, confidence) * (bounds[1] - bounds[0])
        low, high = max(bounds[0], value - reach), min(bounds[1], value + reach)
    return min(float(low), value), max(float(high), value)


def share(
    correct: Bools, block: Ints, *, rng: np.random.Generator, replicates: int = 1000
) -> Estimate:
    """Return the share of true entries, with an interval that resamples blocks.

    Args:
        correct: whether each entry is true ``[n]``.
        block: block of each entry ``[n]``, for example the user. With a single block the interval
            is 0 to 1, since one block does not show how blocks differ.
        rng: draws the resamples.
        replicates: number of resamples.
    """
    values = correct.astype(np.float64)
    _, index = np.unique(block, return_inverse=True)
    size = np.bincount(index).astype(np.float64)
    hits = np.bincount(index, weights=values)
    drawn = draw_blocks(len(size), replicates, rng)
    value = float(values.mean())
    if len(size) < 2:
        return Estimate(value, *SHARE, n=len(values))
    ends = bootstrap_interval(value, (drawn @ hits) / (drawn @ size), blocks=len(size))
    return Estimate(value, *ends, n=len(values))


def jackknife_interval(
    value: float, without: Floats, *, confidence: float = 0.95, bounds: tuple[float, float] = SHARE
) -> tuple[float, float]:
    """Return the Student t interval of a score, from the scores that each leave out one unit.

    If these are all equal (no trial has an error, for example), the jackknife sees no spread; the
    interval then extends by ``unseen`` to each side.

    Args:
        value: the score on all trials.
        without: scores ``[k]``, each without the trials about one of k units.
        confidence: two-sided.
        bounds: smallest and largest possible value.

    Raises:
        InputError: there are fewer than two units, or a score without one is not finite.

    References:
        Efron and Stein, The jackknife estimate of variance, Annals of Statistics 1981.

    >>> low, high = jackknife_interval(0.5, np.array([0.4, 0.5, 0.6]))
    >>> round(low, 4), round(high, 4)
    (0.0032, 0.9968)
    """
    units = len(without)
    bad = int((~np.isfinite(without)).sum())
    require(
        units >= 2 and bad == 0,
        f"{units} users, {bad} of them in all trials of some secret, are too few to leave one out; "
        "bring more users, or more trials",
    )
    error = math.sqrt((units - 1) * float(np.var(without)))
    reach = student_t(units - 1, confidence) * error
    if reach == 0:
        reach = unseen(units, confidence) * (bounds[1] - bounds[0])
    return max(bounds[0], value - reach), min(bounds[1], value + reach)
