"""The difference of two estimates, with an interval that is made of their own intervals.

Runs keep no scores of single trials, so two audits cannot be compared trial by trial. Their
intervals are enough: MOVER ("method of variance estimates recovery") takes from each interval the
distance between the value and the end that matters, and adds the two in quadrature. Intervals may
be asymmetric, as those near 0 or 1 are, and the result never leaves the range that is possible.

The method treats the two runs as independent. Audits of the same data and seed share records and
trials, which mostly moves both figures alike; then the interval is wider than it would have to be,
and covers the true difference more often than its confidence says.
"""

import math

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate


def has_interval(estimate: Estimate) -> bool:
    """Return whether the two ends differ: a single record, or a count, has no interval.

    >>> has_interval(Estimate(20.0, 20.0, 20.0, n=1)), has_interval(Estimate(0.9, 0.8, 1.0, n=50))
    (False, True)
    """
    return estimate.low < estimate.high


def difference(before: Estimate, after: Estimate) -> Estimate:
    """Return ``after`` minus ``before`` with an interval, as of two independent estimates.

    Args:
        before: a figure with an interval of its own.
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
    """Return the difference of a figure to itself: exactly 0, as where two runs are the same."""
    return Estimate(0.0, 0.0, 0.0, one.n, one.confidence, one.unit)
