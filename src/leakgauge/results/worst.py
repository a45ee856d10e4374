"""The highest of several estimates, with an interval that holds for all of them together."""

from collections.abc import Sequence
from dataclasses import replace

from scipy import special

from leakgauge.core.checks import require
from leakgauge.results.measurements import Estimate


def among(one: Estimate, count: int) -> Estimate:
    """Return an estimate with ends that hold for ``count`` of its kind together (Bonferroni).

    The distance of each end from the value is lengthened as if the estimate were normal.

    >>> widest = among(Estimate(0.7, 0.6, 0.8, 100), 10)
    >>> round(widest.low, 3), round(widest.high, 3)
    (0.557, 0.843)
    """
    error = (1 - one.confidence) / 2
    longer = float(special.ndtri(1 - error / count) / special.ndtri(1 - error))
    low, high = (one.value + longer * (end - one.value) for end in (one.low, one.high))
    return replace(one, low=max(0.0, low), high=min(1.0, high))


def highest(several: Sequence[Estimate]) -> Estimate:
    """Return the highest of several shares between 0 and 1, and where the highest truth lies.

    The ends are the highest ends of all, each ``among`` all.

    Raises:
        InputError: ``several`` is empty.

    >>> found = highest([Estimate(0.9, 0.8, 0.95, 50), Estimate(0.5, 0.1, 0.99, 5)])
    >>> found.value, found.low > 0.7, found.high
    (0.9, True, 1.0)
    """
    require(len(several) > 0, "got no estimates; pass at least one")
    each = [among(one, len(several)) for one in several]
    top = max(several, key=lambda one: one.value)
    return replace(top, low=max(one.low for one in each), high=max(one.high for one in each))
