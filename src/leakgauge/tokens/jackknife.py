"""Intervals of an estimate over blocks of held-out pairs."""

import numpy as np
import torch
from torch import Tensor

from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.estimators import Estimator

NATS = "nats"


def jackknife(parts: Tensor, measure: Estimator) -> Estimate:
    """Return an estimator's value, with a t interval of its pseudo-values over blocks.

    For a mean over blocks this is the t interval of the mean.

    Args:
        parts: of each block ``[G, 2]``, two blocks or more.
        measure: the estimator.

    References:
        Efron and Stein, The jackknife estimate of variance, Annals of Statistics 1981.

    >>> from leakgauge.tokens.estimators import InfoNCE
    >>> one = jackknife(torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]), InfoNCE())
    >>> one.value, round(one.low, 3), round(one.high, 3)
    (2.0, -0.484, 4.484)
    """
    count = len(parts)
    keep = ~torch.eye(count, dtype=torch.bool)
    whole, *rest = (
        min(_MOST, max(-_MOST, float(measure.value(kept))))
        for kept in (parts, *(parts[keep[row]] for row in range(count)))
    )
    spread = mean_estimate(count * whole - (count - 1) * np.array(rest))
    reach = spread.high - spread.value
    return Estimate(whole, whole - reach, whole + reach, count, unit=NATS)


_MOST = 1e100
"""A value beyond this has overflowed."""
