"""Bounds on information against channels whose information is known."""

import math

import pytest
import torch
from scipy import integrate
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.layers.kernel_information import information_bounds

E = math.log2(math.e)


def gaussian(n: int, d: int, ratio: float, sigma2: float) -> Tensor:
    """Points from N(0, ratio sigma2 I)."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return points * math.sqrt(ratio * sigma2)


@pytest.mark.parametrize(
    ("d", "ratio", "sigma2"),
    [
        (1, 30.0, 0.1),
        (2, 8.0, 2.0),
        pytest.param(1, 1.0, 0.1, marks=pytest.mark.slow),
        pytest.param(4, 2.0, 0.1, marks=pytest.mark.slow),
    ],
)
def test_the_bounds_bracket_a_gaussian_channel(d: int, ratio: float, sigma2: float) -> None:
    """I = d/2 log2(1 + u), u the ratio of variances, and what both bounds are for a population.

    The mean of a kernel of variance a sigma2 under a Gaussian is known, so the bounds of infinitely
    many points are, too: I(u / a) + d/2 log2(e) (u / a) / (1 + u / a). They bracket I. Those of n
    points come near to them while they are well below log2 n.
    """
    found = information_bounds(gaussian(4000, d, ratio, sigma2), sigma2=sigma2)
    information = d / 2 * math.log2(1 + ratio)
    lower, upper = (d / 2 * (math.log2(1 + u) + E * u / (1 + u)) for u in (ratio / 4, ratio))
    assert upper < math.log2(4000) / 2
    assert found.lower < information < found.upper
    assert (found.lower, found.upper) == pytest.approx((lower, upper), rel=0.04)
    assert not found.saturated


@pytest.mark.parametrize("apart", [0.5, 1.0, 2.0])
def test_the_bounds_of_two_points_bracket_the_binary_channel(apart: float) -> None:
    """Where X is one of the points itself, no sampling is left: the bracket is a theorem."""

    def density(at: float) -> float:
        one, other = (math.exp(-((at - s * apart) ** 2) / 2) for s in (-1, 1))
        return (one + other) / 2 / math.sqrt(2 * math.pi)

    entropy = integrate.quad(lambda at: -density(at) * math.log2(density(at)), -12, 12)[0]
    information = entropy - math.log2(2 * math.pi * math.e) / 2
    found = information_bounds(torch.tensor([[-apart], [apart]]).double(), sigma2=1.0)
    assert found.lower < information < found.upper


def test_the_formula_written_out() -> None:
    points, sigma2 = gaussian(30, 3, 5.0, 0.2), 0.2
    wanted = []
    for a in (4, 1):
        total = 0.0
        for one in points:
            kernels = [math.exp(-float((one - p).square().sum()) / 2 / a / sigma2) for p in points]
            total -= math.log2(sum(kernels) / 30) / 30
        wanted.append(total)
    found = information_bounds(points, sigma2=sigma2)
    assert (found.lower, found.upper) == pytest.approx(wanted)
    single = information_bounds(points, sigma2=sigma2, max_bytes=1)
    assert (single.lower, single.upper) == pytest.approx(wanted)


def test_identical_points_tell_nothing_and_far_ones_all() -> None:
    same = information_bounds(torch.full((64, 5), 1234.567))
    assert (same.lower, same.upper, same.saturated) == (0, 0, False)
    far = information_bounds(1000 * torch.arange(64.0)[:, None])
    assert (far.lower, far.upper) == pytest.approx((6, 6))
    assert far.shares == pytest.approx((1, 1))
    assert far.saturated


def test_a_large_mean_and_images_do_not_matter() -> None:
    points = gaussian(50, 4, 5.0, 0.1)
    plain = information_bounds(points)
    moved = information_bounds(points.reshape(50, 2, 2) + 1e6)
    assert (moved.lower, moved.upper) == pytest.approx((plain.lower, plain.upper), rel=1e-6)


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"t is \[1, 2\]; expected"):
        information_bounds(torch.zeros(1, 2))
    with pytest.raises(InputError, match="sigma2 is 0; expected a number above 0"):
        information_bounds(torch.zeros(3, 2), sigma2=0)
    with pytest.raises(InputError, match="not finite"):
        information_bounds(torch.tensor([[1.0], [math.inf]]))
