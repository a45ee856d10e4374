"""What an oracle finds, against Gaussian channels of known information and against no leak."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Dataset, Grads, Task
from leakgauge.defenses import Defense, Transform
from leakgauge.gradients import params_of
from leakgauge.results.measurements import Estimate
from leakgauge.tokens.gathering import Gathering, oracle_parts
from leakgauge.tokens.oracle import channels, oracle_information
from leakgauge.tokens.settings import CriticSettings
from leakgauge.tokens.sources import Pairs, PairSplit, split_pairs

COUNT, WIDTH = 3000, 8
SETTINGS = CriticSettings(group=64, evaluated=COUNT)


def split_of(gradients: Tensor, at: int = 3) -> PairSplit:
    halves = {"first": gradients[:, :at], "last": gradients[:, at:]}
    return split_pairs(Pairs(gradients[:, :1], halves))


def found(sent: Tensor, *known: Tensor, seed: int = 0, at: int = 3) -> Estimate:
    pairs = [split_of(one, at) for one in (sent, *known)]
    return oracle_information(pairs[0], pairs[1:], SETTINGS, seed=seed)[0]


def normal(seed: int, *, width: int = WIDTH) -> Tensor:
    return torch.randn(COUNT, width, generator=torch.Generator().manual_seed(seed))


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
    each, layers, shared, *others = channels(sent, known, [3, WIDTH - 3])
    for place in range(WIDTH):
        one = torch.stack([known[:, place], torch.ones(COUNT, dtype=torch.float64)], dim=1)
        fitted = torch.linalg.lstsq(one, sent[:, place]).solution
        left = sent[:, place] - one @ fitted
        assert each.gain[place].item() == pytest.approx(fitted[0].item())
        assert each.variance[place].item() == pytest.approx(left.square().mean().item())
    assert [len(one.gain.unique()) for one in (layers, shared)] == [2, 1]
    assert [len(one.variance.unique()) for one in (layers, shared)] == [2, 1]
    assert len(others) == 9


def test_random_signs_and_sizes_of_releases_hide_nothing_from_it() -> None:
    known, random = normal(0, width=60), torch.Generator().manual_seed(3)
    sign = torch.randn(COUNT, 1, generator=random).sign()
    size = torch.randn(COUNT, 1, generator=random).mul(3).exp()
    for change in (sign, size, sign * size):
        assert found(change * known, known).low > 0.9 * math.log(SETTINGS.group)


def test_a_public_offset_hides_nothing_from_it() -> None:
    plain, moved = (found(normal(0) + normal(1) + one, normal(0)) for one in (0.0, 1000.0))
    assert moved.value == pytest.approx(plain.value, rel=0.01)


def test_rare_noise_hides_nothing_from_it() -> None:
    known, rare = normal(0, width=60), torch.Generator().manual_seed(3)
    noise = 1000 * (torch.rand(COUNT, 1, generator=rare) < 0.02) * normal(1, width=60)
    assert found(known + noise, known).low > 0.8 * math.log(SETTINGS.group)


def test_a_layer_of_noise_alone_hides_no_other_one() -> None:
    nats, width = 0.5, 600
    noise = 1 / math.sqrt(math.exp(2 * nats / width) - 1)
    first, last = normal(0, width=400), normal(1, width=width)
    sent = torch.cat([1000 * normal(2, width=400), last + noise * normal(3, width=width)], dim=1)
    one = found(sent, torch.cat([first, last], dim=1), at=400)
    assert one.value == pytest.approx(nats, abs=0.1)


class Half(Transform):
    """Much noise on every other coordinate, and none on the rest."""

    def __call__(self, grads: Grads, rngs: Sequence[torch.Generator]) -> Grads:
        return {name: leaf + self.noise(leaf, rngs) for name, leaf in grads.items()}

    def noise(self, leaf: Tensor, rngs: Sequence[torch.Generator]) -> Tensor:
        drawn = torch.stack([torch.randn(leaf[0].numel(), generator=one) for one in rngs])
        drawn[:, ::2] = 0
        return 1000 * drawn.view_as(leaf)


def test_sums_of_noisy_and_exact_coordinates_hide_nothing_from_it() -> None:
    """Each sum of a sketch has 12 coordinates, so all are noisy; some are also read alone."""
    random = torch.Generator().manual_seed(0)
    x, y = torch.randn(1600, 100, generator=random), torch.arange(1600) % 2
    task = Task(nn.Linear(100, 2))
    how = Gathering(layers=[""], batch_size=4, width=16, defense=Defense("half", update=Half()))
    sent, known = oracle_parts(task, params_of(task.model), Dataset(x, y), how, seed=0)
    one, most = oracle_information(sent, known, SETTINGS, seed=0)
    assert one.low > 0.9 * most


@pytest.mark.parametrize("place", [0, COUNT - 100])
def test_a_gradient_that_is_not_finite_is_refused(place: int) -> None:
    """Wherever it is: the first is fitted on, the last is reported."""
    sent = normal(0)
    sent[place, 1] = float("nan")
    for pair in ((sent, normal(0)), (normal(0), sent)):
        with pytest.raises(InputError, match="not finite"):
            found(*pair)
