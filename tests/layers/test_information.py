"""V-information, its calibration, and attacks on parts of gradients, against independent sums."""

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression

from leakgauge.core.checks import InputError
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.partial import PartialAttack, Selection
from leakgauge.layers.information import (
    UNITS,
    VOTES_CAP_BITS,
    calibrate,
    gain,
    in_unit,
    softmax_over_votes,
    v_information,
)
from leakgauge.layers.observation import KernelMax
from leakgauge.results.information import entropy
from leakgauge.results.scores import ScoredTrials


def channel(n: int, shift: float, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Secrets, and log-odds of a Gaussian shift, which is all that can be known of them."""
    rng = np.random.default_rng(seed)
    secret = np.arange(n) % 2
    seen = rng.normal(size=n) + shift * secret
    odds = shift * seen - shift**2 / 2
    return secret, np.stack([0 * odds, odds], axis=1)


def test_the_information_of_a_known_channel_is_found() -> None:
    """The Bayes posterior of two unit Gaussians has the mutual information of the channel."""
    shift = 1.5
    grid = np.linspace(-8, 10, 20001)
    each = stats.norm.pdf(grid), stats.norm.pdf(grid - shift)
    mixed = (each[0] + each[1]) / 2
    known = sum(np.trapezoid(p * np.log(p / mixed), grid) / 2 for p in each)
    secret, odds = channel(20000, shift)
    first, second = channel(4000, shift, seed=1), channel(4000, shift, seed=2)
    held_out = HeldOut(3 * np.concatenate([first[1], second[1]]), np.concatenate([first[0]] * 2))
    prior = np.log([0.5, 0.5])
    trials = ScoredTrials(secret, calibrate(held_out)(3 * odds, prior), np.arange(20000) // 4)
    found = v_information(trials, prior, rng=np.random.default_rng(0))
    assert found.low <= known <= found.high
    assert found.high - found.low < 0.05
    assert found.value == pytest.approx(known, abs=0.01)


def test_platt_is_logistic_regression_on_the_odds() -> None:
    secret, odds = channel(2000, 0.8)
    found = calibrate(HeldOut(5 * odds + np.array([0.0, 3.0]), secret))
    plain = LogisticRegression(C=np.inf).fit(5 * odds[:, 1:] + 3.0, secret)
    assert found.slope == pytest.approx(plain.coef_[0, 0], rel=0.02)
    assert found.shift[1] == pytest.approx(plain.intercept_[0], abs=0.03)


def test_unequal_priors_and_three_values_keep_the_entropy() -> None:
    prior = np.log([0.7, 0.2, 0.1])
    truth = np.random.default_rng(0).choice(3, p=np.exp(prior), size=3000)
    sure = np.log(np.full((3000, 3), 1e-9))
    sure[np.arange(3000), truth] = np.log(1 - 2e-9)
    found = v_information(
        ScoredTrials(truth, sure, np.arange(3000)), prior, rng=np.random.default_rng(0)
    )
    assert found.value == pytest.approx(entropy(prior), abs=0.03)
    units = {unit: in_unit(found, unit, prior).value for unit in UNITS}
    assert units["share"] == pytest.approx(1.0, abs=0.04)
    assert units["bits"] == pytest.approx(units["nats"] / np.log(2))


def test_an_attack_that_misleads_has_an_interval_that_holds_0() -> None:
    wrong = ScoredTrials(np.arange(200) % 2, np.log([[0.4, 0.6], [0.6, 0.4]] * 100), np.arange(200))
    found = v_information(wrong, np.log([0.5, 0.5]), rng=np.random.default_rng(0))
    assert found.value == pytest.approx(np.log(0.8))
    assert found.low <= found.value < found.high == 0.0


def test_an_attack_that_guesses_worse_is_not_heard() -> None:
    rng = np.random.default_rng(0)
    halves = [HeldOut(rng.normal(size=(400, 2)), np.arange(400) % 2) for _ in range(2)]
    wrong = HeldOut(-halves[0].log_odds, halves[0].secret)
    assert gain((wrong, wrong)) <= 0.02
    secret, odds = channel(400, 2.0)
    assert gain((HeldOut(odds, secret), HeldOut(odds, secret))) > 0.2
    trials = ScoredTrials(secret, np.log(np.full((400, 2), 0.5)) + 0.0, np.arange(400) // 4)
    found = v_information(trials, np.log([0.5, 0.5]), ignorant=True, rng=np.random.default_rng(0))
    assert (found.value, found.low) == (0.0, 0.0)


def test_votes_taken_for_logits_are_capped() -> None:
    best = softmax_over_votes(np.array([[0.0, 1.0]]))[0, 1]
    assert (best + np.log(2)) / np.log(2) == pytest.approx(VOTES_CAP_BITS)
    assert pytest.approx(0.548, abs=5e-4) == VOTES_CAP_BITS


def test_a_convolution_of_2304_weights_has_256_features() -> None:
    leaf = torch.randn(3, 16, 16, 3, 3, generator=torch.Generator().manual_seed(0))
    pooled = KernelMax()({"w": leaf})["w"].flatten(1)
    assert pooled.shape == (3, 256)
    assert torch.equal(pooled[1, 17], leaf[1, 1, 1].max())


@pytest.mark.parametrize("numbers", [3, 40, 1000, 3000, 10_000, 10**6])
def test_gradients_are_kept_as_whole_as_memory_lets_them(numbers: int) -> None:
    params = {
        "conv": torch.zeros(16, 16, 3, 3),
        "linear": torch.zeros(40, 50),
        "bias": torch.zeros(10),
    }
    grads = {name: leaf.expand(2, *leaf.shape) for name, leaf in params.items()}

    def width(keep: KernelMax) -> int:
        return sum(leaf[0].numel() for leaf in keep(grads).values())

    kept = KernelMax.within(params, 7, max_bytes=numbers * 7 * 4)
    assert width(kept) <= numbers
    more = width(KernelMax(kept.most + 1))
    assert more > numbers or more == width(kept)


def test_a_part_sees_its_parameters_and_the_same_coordinates_always() -> None:
    grads = {name: torch.randn(5, 4, 3) for name in "abc"}
    one = Selection(("a", "c"), coordinates=7, seed=1)
    seen = one(grads)["coordinates"]
    flat = torch.cat([grads["a"].flatten(1), grads["c"].flatten(1)], dim=1)
    found = [int((flat[0] == value).nonzero()[0]) for value in seen[0]]
    assert len(set(found)) == 7
    assert torch.equal(flat[:, found], seen)
    changed = {**grads, "b": torch.zeros(5, 4, 3)}
    assert torch.equal(one(changed)["coordinates"], seen)
    with pytest.raises(InputError, match="no parameter 'd'"):
        Selection(("d",))(grads)
    with pytest.raises(InputError, match="has no parameters"):
        PartialAttack(None, ()).selection  # type: ignore[arg-type]  # noqa: B018
