"""Compute the guarantee of Gaussian noise from its definition."""

import math

from scipy import integrate, stats


def delta_gaussian(epsilon: float, mu: float) -> float:
    """Integrate the excess of p(x) over exp(epsilon) q(x), for p = N(mu, 1) and q = N(0, 1)."""
    crossing = epsilon / mu + mu / 2
    value = integrate.quad(
        lambda x: stats.norm.pdf(x, mu) - math.exp(epsilon) * stats.norm.pdf(x),
        crossing,
        crossing + 15,
        epsabs=1e-15,
    )[0]
    return float(value)
