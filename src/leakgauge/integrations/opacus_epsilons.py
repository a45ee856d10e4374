"""Epsilons of the steps that Opacus counted, faster than by its accountants, with its formulas."""

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from leakgauge.results.statistics import Floats

Steps = tuple[tuple[float, float, int], ...]
"""(noise multiplier, sample rate, number) of equal steps, as in an accountant's history."""

ORDERS = (1.1, 1.25, 1.5, 1.75, *map(float, range(2, 64)))
"""Orders of Renyi divergences. Opacus takes 151, of which the 90 fractional ones take long."""


def renyi_epsilon(steps: Steps, delta: float) -> float:
    """Return an upper bound of epsilon, from Renyi divergences at few orders.

    The divergences of equal steps are kept, so that further deltas cost next to nothing.

    Args:
        steps: the counted steps.
        delta: in (0, 1).

    >>> bound = renyi_epsilon(((1.0, 0.1, 30),), 1e-5)
    >>> round(bound, 1)
    4.8
    """
    from opacus.accountants.analysis.rdp import get_privacy_spent

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the first or last order
        return float(get_privacy_spent(orders=ORDERS, rdp=_divergences(steps), delta=delta)[0])


def prv_epsilon(steps: Steps, delta: float, error: float) -> float:
    """Return the upper end of an interval of epsilon, as Opacus' PRV accountant does.

    Only the domain of privacy losses differs: it follows from Renyi divergences at few orders,
    which makes it larger and the result no less exact.

    Args:
        steps: the counted steps.
        delta: in (0, 1).
        error: half of the width of the interval.

    References:
        Gopi et al., "Numerical composition of differential privacy", 2021, remark 5.6.
    """
    from opacus.accountants.analysis import prv

    numbers, tail = [number for *_, number in steps], delta / 1000
    domain = _domain(steps, tail, error)
    losses = [prv.PoissonSubsampledGaussianPRV(rate, noise) for noise, rate, _ in steps]
    cut = [prv.TruncatedPrivacyRandomVariable(one, domain.t_min, domain.t_max) for one in losses]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on approximations
        composed = prv.compose_heterogeneous([prv.discretize(one, domain) for one in cut], numbers)
    return float(composed.compute_epsilon(delta, tail, error)[2])


def _domain(steps: Steps, tail: float, error: float) -> Any:
    from opacus.accountants.analysis import prv

    total = sum(number for *_, number in steps)
    each = [renyi_epsilon(((noise, rate, 1),), tail / (8 * total)) for noise, rate, _ in steps]
    end = max(renyi_epsilon(steps, tail / 4), *each, error) + 3
    mesh = error / np.sqrt(total * np.log(12 / tail) / 2)
    return prv.Domain.create_aligned(-end, end, mesh)


def _divergences(steps: Steps) -> Floats:
    each = [number * _of_step(noise, rate) for noise, rate, number in steps]
    divergences: Floats = np.sum(each, axis=0)
    return divergences


@lru_cache(maxsize=4096)
def _of_step(noise: float, rate: float) -> Floats:
    from opacus.accountants.analysis.rdp import compute_rdp

    return np.asarray(compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=list(ORDERS)))
