"""The limit by sensitivity against simulated channels: many values, many dimensions, many rounds.

``test_bounds.py`` integrates channels of two and three values over a grid.
"""

import math

import numpy as np
import pytest
from scipy import special

from leakgauge.core.rng import stream
from leakgauge.privacy.information import sensitivity_information

PRIOR = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
DELTA = 1.0
CORNERS = DELTA / math.sqrt(2) * np.eye(5)
"""Five noiseless releases, each two at a distance of DELTA."""


def log_densities(seen: np.ndarray, means: np.ndarray, sigma: float) -> np.ndarray:
    """Return log p(y | a) ``[n, m]`` up to a constant, for means ``[m, k]`` or ``[n, m, k]``."""
    gaps = seen[:, None] - (means if means.ndim == 3 else means[None])
    return -np.square(gaps).sum(axis=2) / (2 * sigma**2)


def gains(secret: np.ndarray, log_density: np.ndarray) -> np.ndarray:
    """Return log p(y | a) / p(y) at the truth ``[n]``; its mean is the information, in nats."""
    mixed = special.logsumexp(log_density + np.log(PRIOR), axis=1)
    found: np.ndarray = log_density[np.arange(len(secret)), secret] - mixed
    return found


def released(sigma: float, *, rounds: int, n: int = 40_000) -> np.ndarray:
    """Return the gains ``[n]`` of an adversary that sees noisy releases in 12 dimensions.

    The next release depends on what was seen before: its points are scaled, by at most 1, and its
    axes are permuted. It also holds a part that the secret does not touch.
    """
    rng = stream(0, "released", rounds)
    secret = rng.choice(5, size=n, p=PRIOR)
    means = np.tile(np.pad(CORNERS, ((0, 0), (0, 7))), (n, 1, 1))
    total = np.zeros((n, 5))
    for _ in range(rounds):
        same = rng.normal(size=(n, 1, 12))  # all else, which the adversary knows
        seen = (means + same)[np.arange(n), secret] + sigma * rng.normal(size=(n, 12))
        total += log_densities(seen, means + same, sigma)
        scale = np.clip(np.abs(seen[:, :1]), 0.8, 1.0)[:, None]
        means = scale * np.roll(means, int(rng.integers(12)), axis=2)
    return gains(secret, total)


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.0])
def test_five_values_in_twelve_dimensions_tell_no_more(sigma: float, rounds: int) -> None:
    """Rounds that depend on each other add up, and the dimensions of the noise do not count."""
    found = released(sigma, rounds=rounds)
    error = found.std() / math.sqrt(len(found))
    bound = rounds * sensitivity_information(DELTA, sigma, PRIOR)
    assert found.mean() - 3 * error <= bound
    if sigma == 3.0 and rounds == 1:  # much noise: the bound is what gets through
        assert bound == pytest.approx(found.mean(), abs=4 * error)
        assert 4 * error < bound / 3


def test_the_spread_of_the_points_is_what_the_proof_says() -> None:
    """Their mean squared distance from their mean, against the sum over pairs of values."""
    mean = PRIOR @ CORNERS
    spread = float(PRIOR @ np.square(CORNERS - mean).sum(axis=1))
    assert spread == pytest.approx((1 - np.square(PRIOR).sum()) * DELTA**2 / 2)
    for sigma in (0.3, 2.0):
        expected = 2 * math.log1p(spread / (4 * sigma**2))  # four dimensions
        assert sensitivity_information(DELTA, sigma, PRIOR) == pytest.approx(expected)


def test_any_points_within_the_sensitivity_spread_no_further() -> None:
    rng = stream(0, "points")
    for _ in range(200):
        points = rng.normal(size=(5, 3))
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        points *= DELTA / apart.max()
        spread = PRIOR @ np.square(points - PRIOR @ points).sum(axis=1)
        assert spread <= (1 - np.square(PRIOR).sum()) * DELTA**2 / 2 + 1e-12
