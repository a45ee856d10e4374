"""Estimators of mutual information, against double loops and a critic that is perfect."""

import math

import pytest
import torch

from leakgauge.core.checks import InputError
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.estimators import Smile, critic_gap, estimator, jackknife
from leakgauge.tokens.fitting import _merged
from leakgauge.tokens.words import ESTIMATORS
from support.gaussians import gaussians, log_ratio
from support.references import tokens as literal

LITERAL = {
    "infonce": literal.infonce,
    "nwj": literal.nwj,
    "smile": literal.smile,
    "mine": literal.mine,
}


def random_scores(count: int, k: int, *, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(count, k, k, generator=generator, dtype=torch.float64)


def value(name: str, groups: torch.Tensor) -> float:
    measure = estimator(name)
    return float(measure.value(torch.stack([measure.parts(one) for one in groups])))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(("count", "k"), [(1, 2), (1, 7), (3, 5)])
def test_values_are_those_of_a_double_loop(name: str, count: int, k: int) -> None:
    groups = random_scores(count, k)
    assert (groups.abs() > 5).any() or k < 5, "the clip must act somewhere"
    assert value(name, groups) == pytest.approx(LITERAL[name](groups.tolist()), rel=1e-12)


@pytest.mark.parametrize("name", ["infonce", "nwj", "mine"])
def test_objectives_of_bounds_are_their_values_on_a_batch(name: str) -> None:
    scores = random_scores(1, 6)
    objective = float(estimator(name).objective(scores[0]))
    assert objective == pytest.approx(LITERAL[name](scores.tolist()), rel=1e-12)


def test_smile_learns_by_the_jensen_shannon_objective() -> None:
    scores = random_scores(1, 6)[0]
    objective = float(estimator("smile").objective(scores))
    assert objective == pytest.approx(literal.jensen_shannon(scores.tolist()), rel=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_block_of_groups_counts_as_its_pairs_together(name: str) -> None:
    groups = random_scores(4, 5)
    measure = estimator(name)
    merged = [_merged([measure.parts(one) for one in half]) for half in groups.split(2)]
    found = float(measure.value(torch.stack(merged)))
    assert found == pytest.approx(LITERAL[name](groups.tolist()), rel=1e-12)


def with_the_true_ratio(name: str, nats: float, *, k: int, groups: int, seed: int):
    """The optimum of every bound; NWJ's is one higher, as it subtracts one in the exponential."""
    x, y = gaussians(k * groups, 2, nats, seed=seed)
    measure = estimator(name)
    shift = 1.0 if name == "nwj" else 0.0
    parts = [
        measure.parts(log_ratio(one, other, nats) + shift)
        for one, other in zip(x.split(k), y.split(k), strict=True)
    ]
    return jackknife(torch.stack(parts), measure)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_critic_of_the_true_density_ratio_finds_the_information(name: str) -> None:
    found = [with_the_true_ratio(name, 1.0, k=250, groups=8, seed=seed).value for seed in range(30)]
    mean = mean_estimate(found, confidence=0.999)
    assert mean.value == pytest.approx(1.0, abs=0.05)
    assert mean.low - 0.02 <= 1.0 <= mean.high + 0.02  # of 250 negatives InfoNCE lacks 0.01
    assert mean.high - mean.low < 0.12


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("groups", [4, 8])
def test_intervals_over_blocks_hold_the_information_as_often_as_they_say(
    name: str, groups: int
) -> None:
    """95 of 100; with 100 seeds fewer than 88 have a chance of 0.4 %."""
    found = [with_the_true_ratio(name, 0.2, k=60, groups=groups, seed=seed) for seed in range(100)]
    assert sum(one.low <= 0.2 <= one.high for one in found) >= 88
    assert sum(one.high - one.low for one in found) / 100 < 0.4
    assert sum(one.low > 0 for one in found) >= (20 if groups == 4 else 60)


def test_infonce_of_a_perfect_critic_ends_at_the_log_of_the_group() -> None:
    nats, k = 12.0, 8
    x, y = gaussians(k * 100, 40, nats, seed=0)
    measure = estimator("infonce")
    parts = [
        measure.parts(log_ratio(one, other, nats))
        for one, other in zip(x.split(k), y.split(k), strict=True)
    ]
    found = float(measure.value(torch.stack(parts)))
    assert 0.99 * math.log(k) < found <= measure.limit(k) == math.log(k)


def test_only_infonce_ends() -> None:
    limits = {name: estimator(name).limit(16) for name in ESTIMATORS}
    assert limits.pop("infonce") == math.log(16)
    assert set(limits.values()) == {math.inf}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("k", [2, 3, 64])
def test_a_constant_critic_finds_nothing(name: str, k: int) -> None:
    measure = estimator(name)
    constant = torch.full((3, k, k), measure.start, dtype=torch.float64)
    assert value(name, constant) == pytest.approx(0.0, abs=1e-12)
    if name != "nwj":  # the others do not see the constant
        assert value(name, constant + 2.5) == pytest.approx(0.0, abs=1e-12)
    else:
        assert value(name, constant + 2.5) < -1


def test_mine_takes_one_partner_for_each_pair() -> None:
    """Each token is the partner of one other row, and all other negatives have no effect."""
    scores = random_scores(1, 6)[0].requires_grad_()
    (slope,) = torch.autograd.grad(estimator("mine").objective(scores), scores)
    negatives = slope.clone().fill_diagonal_(0)
    assert slope.diagonal().tolist() == pytest.approx([1 / 6] * 6)
    assert (negatives <= 0).all()
    used = negatives != 0
    assert used.sum(0).tolist() == used.sum(1).tolist() == [1] * 6


def test_the_other_estimators_use_all_negatives() -> None:
    for name in ("infonce", "nwj", "smile"):
        scores = random_scores(1, 6)[0].requires_grad_()
        (slope,) = torch.autograd.grad(estimator(name).objective(scores), scores)
        assert (slope[~torch.eye(6, dtype=torch.bool)] < 0).all(), name
        assert (slope.diagonal() > 0).all(), name


def test_the_clip_of_smile_leaves_matched_scores_alone() -> None:
    scores = 9.0 * torch.eye(4, dtype=torch.float64) - 20.0 * (1 - torch.eye(4))
    for clip in (1.0, 5.0):
        parts = Smile(clip).parts(scores)
        assert parts.tolist() == pytest.approx([9.0, -clip])


def test_the_gap_is_that_of_a_double_loop_and_scales_with_the_critic() -> None:
    scores = random_scores(1, 7)[0]
    assert critic_gap(scores).tolist() == pytest.approx(literal.gap(scores.tolist()), rel=1e-12)
    once, thrice = critic_gap(scores), critic_gap(3 * scores)
    assert float(thrice[0] - thrice[1]) == pytest.approx(3 * float(once[0] - once[1]))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_scores_that_overflow_give_numbers(name: str) -> None:
    scores = torch.full((4, 4), 2000.0).fill_diagonal_(0.0)
    found = value(name, scores[None])
    assert found < -1
    assert not math.isnan(found)
    measure = estimator(name)
    one = jackknife(torch.stack([measure.parts(scores)] * 4), measure)
    assert one.low <= one.value <= one.high < -1


def test_intervals_of_a_mean_are_those_of_student() -> None:
    """For a statistic that is not a mean they follow a literal jackknife."""
    parts = torch.tensor([[1.0, 0.2], [1.4, -0.1], [0.7, 0.5], [1.1, 0.0]], dtype=torch.float64)
    measure = estimator("smile")
    found = jackknife(parts, measure)
    rows = parts.tolist()

    def whole(kept):
        mean = sum(one for one, _ in kept) / len(kept)
        return mean - math.log(sum(math.exp(two) for _, two in kept) / len(kept))

    pseudo = [4 * whole(rows) - 3 * whole(rows[:i] + rows[i + 1 :]) for i in range(4)]
    mean = sum(pseudo) / 4
    error = math.sqrt(sum((one - mean) ** 2 for one in pseudo) / 3 / 4)
    assert found.value == pytest.approx(whole(rows))
    assert found.high - found.value == pytest.approx(3.182446305 * error)
    assert found.value - found.low == pytest.approx(3.182446305 * error)


def test_an_unknown_estimator_names_the_nearest() -> None:
    with pytest.raises(InputError, match="estimator is 'infonc'; did you mean 'infonce'"):
        estimator("infonc")
