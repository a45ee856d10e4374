"""The cheap measure on Gaussians of known information, on none, and against a plain regression."""

import math

import numpy as np
import pytest
import torch
from scipy import special
from sklearn.linear_model import Ridge
from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.tokens.linear_gaussian import FEWEST, _ridge, cheap_information, linear_information
from leakgauge.tokens.sources import FixedPairs, Pairs, PooledPairs, split_stream
from support.gaussians import gaussians


@pytest.mark.calibration
@pytest.mark.parametrize("nats", [0.5, 2.0, 5.0])
def test_it_finds_the_information_of_gaussians(nats: float) -> None:
    found = linear_information(*gaussians(4000, 8, nats, seed=0))
    assert found.value == pytest.approx(nats, abs=0.05 + 0.03 * nats)
    assert found.low <= nats


@pytest.mark.calibration
def test_independent_data_give_about_nothing() -> None:
    found = [linear_information(*gaussians(1000, 8, 0.0, seed=seed)) for seed in range(20)]
    assert max(abs(one.value) for one in found) < 0.01
    assert sum(one.low <= 0 <= one.high for one in found) >= 18
    assert all(one.low < one.high for one in found)  # it says what it could have missed


@pytest.mark.calibration
def test_means_of_batches_have_the_information_of_records() -> None:
    x, y = gaussians(40_000, 4, 1.0, seed=1)
    means = [leaf.reshape(-1, 20, 4).mean(1) for leaf in (x, y)]
    assert linear_information(*means).value == pytest.approx(1.0, abs=0.12)


def test_a_relation_without_covariance_is_not_seen() -> None:
    x = torch.randn(2000, 1, generator=torch.Generator().manual_seed(0))
    assert abs(linear_information(x, x.square()).value) < 0.02


def test_fewer_dimensions_of_gradients_than_of_features_and_constant_ones_are_taken() -> None:
    x, y = gaussians(1000, 4, 1.0, seed=2)
    wide = torch.cat([x, x.new_zeros(1000, 3)], dim=1)
    assert linear_information(wide, y).value == pytest.approx(
        linear_information(x, y).value, abs=1e-6
    )
    assert linear_information(torch.zeros(1000, 3), y).value == 0.0
    assert abs(linear_information(x, torch.zeros(1000, 3)).value) < 0.02


def test_weights_and_left_out_residuals_are_those_of_a_plain_ridge_regression() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5))
    y = x @ rng.standard_normal((5, 2)) + 0.3 * rng.standard_normal((60, 2))
    x, y = x - x.mean(0), y - y.mean(0)
    weights, kept = _ridge(torch.tensor(x), torch.tensor(y), torch.tensor(y.var(0, ddof=1)), 2.0)
    left = kept.square().mean(0)
    known = [0.01, 0.1, 1.0, 10.0]
    for target in range(2):
        errors = {}
        for penalty in known:
            own = Ridge(alpha=penalty * 60, fit_intercept=False)
            rest = [
                y[i, target]
                - own.fit(np.delete(x, i, 0), np.delete(y[:, target], i)).predict(x[[i]])[0]
                for i in range(60)
            ]
            errors[penalty] = float(np.mean(np.square(rest)))
        best = min(errors, key=lambda one: errors[one])
        assert float(left[target]) == pytest.approx(errors[best], rel=1e-6)
        plain = Ridge(alpha=best * 60, fit_intercept=False).fit(x, y[:, target])
        np.testing.assert_allclose(weights[:, target].numpy(), plain.coef_, rtol=1e-6)


def test_it_is_judged_on_records_that_the_fit_has_not_seen() -> None:
    """More coordinates than records: a fit that saw them would rebuild every feature."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(100, 3, generator=rng)
    found = linear_information(x, torch.randn(100, 400, generator=rng))
    assert found.value < 0.1


@pytest.mark.calibration
def test_sources_give_records_or_pairs_and_a_placebo() -> None:
    x, y = gaussians(3000, 6, 2.0, seed=3)
    records = Pairs(x, {"a": y[:, :3], "b": y[:, 3:]})
    for source in (FixedPairs(records), PooledPairs(records, 20)):
        assert cheap_information(source, seed=0).value == pytest.approx(2.0, abs=0.15)
        assert abs(cheap_information(source, seed=0, matched=False).value) < 0.02


def test_long_gradients_are_sketched_and_still_tell() -> None:
    x, y = gaussians(3000, 6, 4.0, seed=4)
    turned = y @ torch.randn(6, 5000, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    found = cheap_information(FixedPairs(Pairs(x, {"a": turned})), seed=0)
    assert found.value > 3.0
    assert math.isfinite(found.high)


def test_bad_input_gets_one_clear_line() -> None:
    with pytest.raises(InputError, match=rf"there are 10 records.* {FEWEST} or more"):
        linear_information(torch.zeros(10, 2), torch.zeros(10, 2))
    with pytest.raises(InputError, match=r"features are \[100, 2\], gradients \[99, 2\]"):
        linear_information(torch.zeros(100, 2), torch.zeros(99, 2))


def students(values: Tensor, degrees: int) -> Tensor:
    """Return Gaussian values mapped to Student's t, which keeps their information."""
    return torch.from_numpy(special.stdtrit(degrees, special.ndtr(values.numpy())))


@pytest.mark.calibration
@pytest.mark.parametrize("degrees", [1, 2, 3])
def test_heavy_tails_keep_their_information(degrees: int) -> None:
    x, y = gaussians(3000, 4, 1.0, seed=1)
    found = linear_information(students(x, degrees), students(y, degrees))
    assert found.value == pytest.approx(1.0, abs=0.08)
    of_records = linear_information(students(x, degrees), students(y, degrees), as_means=True)
    assert of_records.low < 1.0
    assert of_records.high >= 0


@pytest.mark.calibration
@pytest.mark.parametrize("nats", [0.1, 3.0])
@pytest.mark.parametrize("degrees", [1, 2, 3])
def test_records_with_heavy_tails_never_take_it_below_its_own_error(
    degrees: int, nats: float
) -> None:
    """A few records decide second moments, so it finds too little, but no less than nothing."""
    for seed in range(3):
        x, y = (students(one, degrees) for one in gaussians(1000, 4, nats, seed=seed))
        found = linear_information(x, y, as_means=True)
        assert found.high >= 0
        assert -0.05 < found.value < nats + 0.1


@pytest.mark.calibration
@pytest.mark.parametrize("as_means", [False, True])
@pytest.mark.parametrize("awake", [slice(0, 37), slice(450, 600)])
def test_a_unit_that_wakes_up_between_the_known_rows_does_no_harm(
    awake: slice, as_means: bool
) -> None:
    """A coordinate that is all but constant in most rows gets a huge scale in some."""
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(600, 4, generator=rng), torch.randn(600, 6, generator=rng)
    y[:, 0] = 1e-6 * (0.5 * x[:, 0] + y[:, 0])
    y[awake, 0] *= 1e6
    found = linear_information(x, y, as_means=as_means)
    assert found.high >= 0
    assert found.value > -0.1


def test_sparse_gradients_of_other_data_give_nothing() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(1000, 20, generator=rng), torch.randn(1000, 30, generator=rng)
    for leaf, share in ((x, 0.05), (y, 0.01)):
        leaf *= torch.rand(leaf.shape, generator=rng) < share
    assert abs(linear_information(x, y).value) < 0.01


@pytest.mark.calibration
def test_a_discrete_feature_has_no_more_than_its_entropy() -> None:
    """The features are known exactly, so a Gaussian density of the values would be unbounded."""
    rare = (torch.rand(2000, 1, generator=torch.Generator().manual_seed(0)) < 0.05).float()
    share = float(rare.mean())
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    found = linear_information(rare, rare)
    assert 0.3 * entropy < found.value < entropy


@pytest.mark.calibration
def test_a_common_drift_is_no_leak_and_a_leak_is_found_beside_it() -> None:
    x, y = gaussians(1510, 4, 1.0, seed=3)
    other = torch.randn(1510, 4, generator=torch.Generator().manual_seed(4), dtype=x.dtype)
    course = torch.linspace(0, 50, 1510, dtype=x.dtype)[:, None]
    for gradients, nats in ((y, 1.0), (other, 0.0)):
        moved = Pairs(x + course, {"a": gradients - 2 * course})
        fitting = split_stream(moved).fitting
        assert cheap_information(fitting, seed=0).value == pytest.approx(nats, abs=0.15)
        assert abs(cheap_information(fitting, seed=0, matched=False).value) < 0.02


def test_rows_that_share_records_are_on_one_side() -> None:
    """Each block repeats one pair, so a fit that saw the block would know all of it."""
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(8, 3, generator=rng).repeat_interleave(20, 0) for _ in range(2))
    y = y + 0.01 * torch.randn(160, 3, generator=rng)
    found = cheap_information(FixedPairs(Pairs(x, {"a": y}), block=20), seed=0)
    assert found.low <= 0
