"""Audits of one run, literally as in the papers: loops over sums and arrays."""

import math
from collections.abc import Callable

from scipy import stats


def steinke_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Apply Steinke et al. 2023: the tail, and the largest mean of the masses below v."""
    q = 1 / (1 + math.exp(-epsilon))
    masses = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    tail = sum(masses[v:])
    largest = 0.0
    for i in range(1, m + 1):
        largest = max(largest, sum(masses[max(0, v - i) : v]) / i)
    return min(1.0, tail + 2 * m * delta * largest)


def mahloujifar_refutes(m: int, r: int, v: int, significance: float, mu: float) -> bool:
    """Apply Mahloujifar et al. 2025: the recursion with arrays, for N(0,1) and N(mu,1)."""

    def inverse(x: float) -> float:
        return float(stats.norm.cdf(stats.norm.ppf(x) - mu))

    return recursion(m, r, v, significance, inverse)


def recursion(
    m: int, r: int, v: int, significance: float, inverse: Callable[[float], float]
) -> bool:
    right, wrong = [0.0] * (v + 1), [0.0] * (v + 1)
    right[v], wrong[v] = significance * v / m, significance * (r - v) / m
    for i in reversed(range(v)):
        wrong[i] = max(wrong[i + 1], inverse(min(1.0, right[i + 1])))
        right[i] = right[i + 1] + i / (r - i) * (wrong[i] - wrong[i + 1])
    return right[0] + wrong[0] > r / m
