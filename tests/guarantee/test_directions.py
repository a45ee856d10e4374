"""Noise that a mechanism leaves out of some coordinates, or adds to several, is seen."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.gradients import MAX_BYTES
from leakgauge.guarantee import DPSGDMechanism, LikelihoodRatio, game
from leakgauge.guarantee.directions import DIRECTIONS, clearest, piloted
from leakgauge.guarantee.game import AuditResult, audit_hypotheses
from leakgauge.guarantee.mechanism import Mechanism
from leakgauge.guarantee.metrics import COORDINATES, DIFFERENCE, SHARED
from leakgauge.guarantee.release import Hypotheses, hypotheses_from, make_releases
from leakgauge.guarantee.theory import NEAR

D, CLIP, DELTA = 300, 1.0, 1e-5
Noise = Callable[[torch.Generator], Tensor]


def independent(std: float) -> Noise:
    return lambda rng: std * torch.randn(D, generator=rng)


def left_out(std: float) -> Noise:
    """No noise on every other coordinate."""
    return lambda rng: std * torch.randn(D, generator=rng) * (torch.arange(D) % 2)


def less(std: float) -> Noise:
    """A tenth of the noise on every other coordinate."""
    return lambda rng: std * torch.randn(D, generator=rng) * (0.1 + 0.9 * (torch.arange(D) % 2))


def one_number(std: float) -> Noise:
    """The same number everywhere."""
    return lambda rng: std * torch.randn(1, generator=rng).expand(D)


def few_numbers(std: float) -> Noise:
    """Mixtures of 20 numbers, with the right variance in each coordinate."""
    mixed = torch.randn(20, D, generator=torch.Generator().manual_seed(5))
    mixed = mixed / mixed.norm(dim=0)
    return lambda rng: std * torch.randn(20, generator=rng) @ mixed


def left_out_with_an_offset(std: float) -> Noise:
    """No noise on every other coordinate, where every release has the same large number."""
    return lambda rng: left_out(std)(rng) + 4.0 * (1 - torch.arange(D) % 2)


def uneven(std: float) -> Noise:
    """Noise that is larger than promised in most coordinates."""
    return lambda rng: std * torch.linspace(1, 3, D) * torch.randn(D, generator=rng)


def shared_besides(std: float) -> Noise:
    """The noise that is promised, and one number everywhere besides."""
    return lambda rng: independent(std)(rng) + one_number(3 * std)(rng)


@dataclass(frozen=True)
class Own:
    """A mechanism of a user, which clips as it says."""

    noise: Noise
    scale: Tensor | float = 1.0

    def __call__(self, grads: Grads, generator: torch.Generator) -> Grads:
        mean = DPSGDMechanism(CLIP, 1.0).clipped(grads)["w"].mean(dim=0)
        return {"w": self.scale * mean + self.noise(generator).view_as(mean)}


def hypotheses(seed: int = 0, values: int = 2, shape: tuple[int, ...] = (D,)) -> Hypotheses:
    versions = {"w": 3 * torch.randn(values, *shape, generator=torch_stream(seed, "versions"))}
    return hypotheses_from(versions, {"w": torch.zeros(0, *shape)}, DPSGDMechanism(CLIP, 1.0))


def audited(noise: Noise, std: float, *, seed: int = 0, values: int = 2) -> AuditResult:
    return audit(Own(noise), std, seed=seed, values=values)


def audit(
    mechanism: Mechanism,
    std: float,
    *,
    seed: int = 0,
    values: int = 2,
    shape: tuple[int, ...] = (D,),
) -> AuditResult:
    return audit_hypotheses(
        hypotheses(seed, values, shape),
        mechanism,
        DPSGDMechanism(CLIP, std),
        LikelihoodRatio(),
        canary="",
        attributes=1,
        trials=1000,
        delta=DELTA,
        near=NEAR,
        releases=1,
        confidence=0.99,
        seed=seed,
        max_bytes=MAX_BYTES,
    )


@pytest.mark.parametrize("values", [2, 4])
@pytest.mark.parametrize(
    ("noise", "direction"),
    [
        (left_out, COORDINATES),
        (left_out_with_an_offset, COORDINATES),
        (less, COORDINATES),
        (one_number, SHARED),
        (few_numbers, SHARED),
    ],
)
def test_noise_that_is_missing_or_shared_is_refuted(noise, direction: str, values: int) -> None:
    found = audited(noise(2.0), 2.0, values=values)
    assert found.violated
    assert found.direction == direction


def test_without_a_pilot_nothing_is_found_against_most_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the pilot is for; along the difference chance may refute them, too."""
    monkeypatch.setattr(game, "piloted", lambda *args, **settings: None)
    found = [audited(noise(2.0), 2.0) for noise in (left_out, less, one_number, few_numbers)]
    assert [one.violated for one in found] == [False] * 4


@pytest.mark.parametrize("axis", [0, 1])
def test_one_number_for_each_row_or_column_is_refuted(axis: int) -> None:
    """They are more numbers than the pilot has releases, so its covariance does not show them."""
    shape = (200, 30) if axis == 0 else (30, 200)
    size = (200, 1) if axis == 0 else (1, 200)
    own = Own(lambda rng: 2.0 * torch.randn(size, generator=rng).expand(shape).reshape(-1))
    found = audit(own, 2.0, shape=shape)
    assert found.violated
    assert found.direction == SHARED


@pytest.mark.parametrize("seed", range(3))
def test_little_noise_where_releases_hardly_move_does_not_hide_less_noise_elsewhere(
    seed: int,
) -> None:
    """Ten coordinates are scaled down with their noise, the others have half of theirs."""
    scale = torch.where(torch.arange(D) < 10, 0.01, 1.0)
    std = torch.where(torch.arange(D) < 10, 0.02, 1.0)
    own = Own(lambda rng: std * torch.randn(D, generator=rng), scale)
    assert audit(own, 2.0, seed=seed).violated


@pytest.mark.parametrize(("noise", "direction"), [(uneven, COORDINATES), (shared_besides, SHARED)])
def test_a_correct_mechanism_that_is_read_elsewhere_is_not_refuted(
    noise: Callable[[float], Noise], direction: str
) -> None:
    found = [audited(noise(0.5), 0.5, seed=seed) for seed in range(8)]
    assert {one.direction for one in found} == {direction}
    assert not any(one.violated for one in found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("values", [2, 4])
def test_independent_noise_is_read_along_the_difference_with_the_same_figures(
    seed: int, values: int
) -> None:
    found = audited(independent(2.0), 2.0, seed=seed, values=values)
    assert found.direction == DIFFERENCE
    assert not found.violated
    plain = make_releases(
        hypotheses(seed, values),
        Own(independent(2.0)),
        LikelihoodRatio(),
        each=500,
        seed=seed,
        max_bytes=MAX_BYTES,
    )
    null, _ = plain.scores(LikelihoodRatio())[1]
    np.testing.assert_array_equal(found.null if not found.turned else -found.null, null)


def test_without_any_noise_it_is_refuted() -> None:
    assert audited(lambda _: torch.zeros(D), 2.0).violated


def test_the_second_direction_is_that_of_the_inverse_variances() -> None:
    one, std = hypotheses(), torch.linspace(1, 3, D)
    pilot = piloted(one, Own(lambda rng: std * torch.randn(D, generator=rng)), seed=0)
    apart = (one.expected["w"][1] - one.expected["w"][0]).double()
    wanted = apart / std**2
    close = torch.nn.functional.cosine_similarity(pilot.others[0][0], wanted, dim=0)
    assert close > 0.97
    parts = make_releases(one, Own(independent(1.0)), pilot, each=40, seed=0, max_bytes=MAX_BYTES)
    assert parts.judged[0].shape == (40, 1, len(DIRECTIONS))
    kept, name = clearest(parts)
    assert kept.judged[0].shape == (40, 1, 1)
    assert name in DIRECTIONS


def test_mechanisms_of_this_package_need_no_pilot() -> None:
    assert audit(DPSGDMechanism(CLIP, 2.0), 2.0).direction == ""


@pytest.mark.slow
@pytest.mark.parametrize("noise", [independent, shared_besides])
def test_correct_mechanisms_are_refuted_as_rarely_as_the_confidence_says(
    noise: Callable[[float], Noise],
) -> None:
    """Noise that all coordinates share besides the promised one leaves nearly the promised mu."""
    trials = 300
    wrong = sum(audited(noise(0.5), 0.5, seed=seed).violated for seed in range(trials))
    assert stats.binom.sf(wrong - 1, trials, 0.01) > 1e-3
