"""Schedules of the step size over the iterations."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType


def constant(done: float) -> float:
    """Return 1."""
    return 1.0


def step_down(done: float) -> float:
    """Return a factor that falls to a tenth after 3/8, 5/8 and 7/8 of the iterations.

    As in Geiping et al., Inverting Gradients, NeurIPS 2020.

    >>> [round(step_down(done), 4) for done in (0.0, 0.4, 0.7, 0.9)]
    [1.0, 0.1, 0.01, 0.001]
    """
    return 0.1 ** sum(done >= share for share in (3 / 8, 5 / 8, 7 / 8))


def cosine(done: float) -> float:
    """Return half a cosine, from 1 down to 0 (Loshchilov and Hutter, SGDR, ICLR 2017).

    >>> [round(cosine(done), 2) for done in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]
    """
    return (1 + math.cos(math.pi * done)) / 2


SCHEDULES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {"constant": constant, "step-down": step_down, "cosine": cosine}
)
"""By name: the share of the iterations done, from 0 to 1, -> a factor on the step size."""


def factor(schedule: str, iteration: int, iterations: int, *, warmup: int = 0) -> float:
    """Return the factor on the step size at ``iteration``, from 0; it rises over ``warmup`` ones.

    >>> [factor("constant", at, 4, warmup=2) for at in range(4)]
    [0.5, 1.0, 1.0, 1.0]
    """
    rise = min(1.0, (iteration + 1) / warmup) if warmup else 1.0
    return rise * SCHEDULES[schedule](iteration / iterations)


def fading(first: float, done: float) -> float:
    """Return ``first`` at the beginning, falling evenly in its logarithm to 1 at half the way.

    >>> [round(fading(100, done), 2) for done in (0.0, 0.25, 0.5, 1.0)]
    [100.0, 10.0, 1.0, 1.0]
    """
    return float(first ** max(0.0, 1 - 2 * done))
