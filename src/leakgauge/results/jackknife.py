"""Delete-one jackknife: intervals where each trial is about several units that others share.

A trial of user inference is about m users. Where all trials draw them from few users, almost any
two trials share one, and there are no disjoint blocks to resample. The score is then a function of
the n users, averaged over random groups of m of them, and the jackknife leaves out one user after
the other, with all trials about the user.

For independent users and any score that takes them alike, the jackknife's variance is on average
at least the true one of a user fewer (Efron and Stein). What trials share through a user counts
once; the chance that drew these trials and their batches counts (n - 1) m / (n - m) times. So the
intervals are honest, and wide where trials are few: more trials narrow them down to what few users
allow.
"""

import math

import numpy as np

from leakgauge.core.checks import require
from leakgauge.results.statistics import SHARE, Floats, student_t, unseen


def jackknife_interval(
    value: float,
    without: Floats,
    *,
    confidence: float = 0.95,
    bounds: tuple[float, float] = SHARE,
) -> tuple[float, float]:
    """Return the Student t interval of a score, by the scores without one unit each.

    Where all of these are equal (no trial has an error, for example), the jackknife sees no spread;
    the interval then extends by ``unseen`` to each side.

    Args:
        value: the score on all trials.
        without: ``[k]``, the score without the trials about each of k units.
        confidence: two-sided.
        bounds: the smallest and largest possible value.

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
