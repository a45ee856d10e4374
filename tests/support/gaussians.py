"""Correlated Gaussians with known mutual information: I = -d/2 log(1 - rho^2)."""

import math

import torch
from torch import Tensor


def correlation(nats: float, d: int) -> float:
    """Return the correlation of each of d pairs of coordinates for an information in nats."""
    return math.sqrt(1 - math.exp(-2 * nats / d))


def gaussians(n: int, d: int, nats: float, *, seed: int) -> tuple[Tensor, Tensor]:
    """Return two samples ``[n, d]``; with 0 nats they are independent."""
    generator = torch.Generator().manual_seed(seed)
    x, noise = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
    rho = correlation(nats, d)
    return x, rho * x + math.sqrt(1 - rho**2) * noise


def log_ratio(x: Tensor, y: Tensor, nats: float) -> Tensor:
    """Return log p(x, y) / p(x) p(y) for every ``x [n, d]`` and ``y [m, d]``, ``[n, m]``."""
    d = x.shape[1]
    rho = correlation(nats, d)
    rest = 1 - rho**2
    squares = (x**2).sum(1)[:, None] + (y**2).sum(1)[None]
    return rho / rest * (x @ y.T) - rho**2 / (2 * rest) * squares - d / 2 * math.log(rest)
