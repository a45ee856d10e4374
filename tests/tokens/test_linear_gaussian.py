"""The cheap measure on Gaussians of known information, on none, and against a plain regression."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from leakgauge.core.checks import InputError
from leakgauge.tokens.linear_gaussian import FEWEST, _ridge, cheap_information, linear_information
from leakgauge.tokens.sources import FixedPairs, Pairs, PooledPairs
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
    weights, left = _ridge(torch.tensor(x), torch.tensor(y), torch.tensor(y.var(0, ddof=1)), 2.0)
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
