"""What an oracle finds, against Gaussian channels of known information and against no leak."""

import math

import pytest
import torch
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.results.measurements import Estimate
from leakgauge.tokens.oracle import channels, oracle_information
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSplit, split_pairs

COUNT, WIDTH = 3000, 8
SETTINGS = CriticSettings(group=64, evaluated=COUNT)


def split_of(gradients: Tensor) -> PairSplit:
    halves = {"first": gradients[:, :3], "last": gradients[:, 3:]}
    return split_pairs(Pairs(gradients[:, :1], halves))


def found(sent: Tensor, *known: Tensor, seed: int = 0) -> Estimate:
    return oracle_information(split_of(sent), [*map(split_of, known)], SETTINGS, seed=seed)[0]


def normal(seed: int, count: int = COUNT) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def literal(sent: Tensor, known: Tensor, noise: float) -> float:
    """Return InfoNCE of the reported groups with the true density of the noise, by loops."""
    start, size, values = round(0.8 * COUNT), SETTINGS.group, []
    for first in range(start, COUNT - size + 1, size):
        for one in range(first, first + size):
            density = [
                math.exp(-float((sent[one] - known[other]).square().sum()) / (2 * noise**2))
                for other in range(first, first + size)
            ]
            values.append(math.log(size * density[one - first] / sum(density)))
    return sum(values) / len(values)


@pytest.mark.parametrize("nats", [0.1, 0.5, 2.0])
def test_it_finds_what_the_true_density_finds_and_no_more_than_the_truth(nats: float) -> None:
    noise = 1 / math.sqrt(math.exp(2 * nats / WIDTH) - 1)
    known = normal(0)
    sent = known + noise * normal(1)
    one = found(sent, known)
    assert one.low <= nats
    assert one.value == pytest.approx(literal(sent, known, noise), abs=0.01 + 0.02 * nats)


def test_public_signs_and_sizes_of_coordinates_hide_nothing_from_it() -> None:
    change = torch.tensor([1.0, -1.0, 10.0, -0.1, 1.0, 1.0, -5.0, 1.0])
    plain, changed = (found((normal(0) + normal(1)) * one, normal(0)) for one in (1.0, change))
    assert changed.value == pytest.approx(plain.value, rel=0.01)


def test_noise_on_some_coordinates_hides_nothing_from_it() -> None:
    noise = 100.0 * normal(1)
    noise[:, WIDTH // 2 :] = 0
    one = found(normal(0) + noise, normal(0))
    assert one.value == pytest.approx(math.log(SETTINGS.group), abs=1e-6)


def test_a_gradient_that_it_computes_exactly_is_recognised() -> None:
    one, most = oracle_information(
        split_of(normal(0)), [split_of(normal(2)), split_of(normal(0))], SETTINGS, seed=0
    )
    assert most == math.log(SETTINGS.group)
    assert one.low == pytest.approx(most, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_it_recognises_no_gradient_of_other_batches(seed: int) -> None:
    one = found(normal(10 + seed), normal(20 + seed), normal(30 + seed), seed=seed)
    assert one.low <= 0
    assert abs(one.value) < 0.02


def test_equal_gradients_tell_nothing() -> None:
    one = found(torch.zeros(COUNT, WIDTH), torch.zeros(COUNT, WIDTH))
    assert (one.low, one.value, one.high) == (0, 0, 0)


def test_a_channel_is_the_least_squares_fit_of_each_coordinate() -> None:
    sent, known = (normal(seed).double() for seed in (1, 0))
    sent = sent + 3 * known
    each, shared = channels(sent, known)
    for place in range(WIDTH):
        gain = torch.linalg.lstsq(known[:, place : place + 1], sent[:, place]).solution
        left = sent[:, place] - gain * known[:, place]
        assert each.gain[place].item() == pytest.approx(gain.item())
        assert each.variance[place].item() == pytest.approx(left.square().mean().item())
    assert len(shared.gain.unique()) == len(shared.variance.unique()) == 1


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    with pytest.raises(InputError, match="not finite"):
        found(normal(0) / 0, normal(0))
