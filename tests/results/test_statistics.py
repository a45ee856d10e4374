"""Student t and exact binomial intervals, against SciPy, statsmodels and closed forms."""

import numpy as np
import pytest
import torch
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results.statistics import (
    clopper_pearson,
    clopper_pearson_upper,
    mean_estimate,
    mean_over_starts,
    share_estimate,
    student_t,
    unseen,
)

CONFIDENCES = [0.8, 0.9, 0.95, 0.99]


@pytest.mark.parametrize("confidence", CONFIDENCES)
def test_student_t_is_scipys_and_known_for_one_and_two_degrees(confidence: float) -> None:
    """One degree is Cauchy's tangent; two degrees have the closed form of Student (1908)."""
    side = (1 + confidence) / 2
    assert student_t(1, confidence) == pytest.approx(np.tan(np.pi * (side - 0.5)))
    two = (2 * side - 1) / np.sqrt(2 * side * (1 - side))
    assert student_t(2, confidence) == pytest.approx(two)
    for degrees in (1, 3, 29, 1000):
        assert student_t(degrees, confidence) == pytest.approx(stats.t.ppf(side, degrees))


def test_an_interval_over_starts_is_welchs_and_never_narrower() -> None:
    """Equal parts of variance, each with 2 degrees of freedom, have 4 together."""
    values = np.array([1.0, 2.0, 3.0])
    starts = values / np.sqrt(3)  # their variance is that of the mean of the values
    found = mean_over_starts(values, starts)
    assert found.value == pytest.approx(2.0)
    assert found.high - 2.0 == pytest.approx(stats.t.ppf(0.975, 4) * np.sqrt(2 / 3))
    alone = mean_estimate(values)
    assert (found.low, found.high) != (alone.low, alone.high)
    assert mean_over_starts(values, [7.0]) == alone
    assert mean_over_starts(values, []) == alone
    one = mean_over_starts([2.0], starts)
    assert one.high - 2.0 == pytest.approx(stats.t.ppf(0.975, 2) * np.sqrt(1 / 3))
    assert mean_over_starts([2.0], [2.0, 2.0]) == mean_estimate([2.0])
    assert mean_over_starts(values, starts, bounds=(0.0, 3.0)).high == 3.0


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("n", [2, 3, 50])
def test_the_interval_of_a_mean_is_that_of_a_t_test(n: int, confidence: float) -> None:
    values = stream(0, "values", n).normal(-20, 3, size=n)
    mean = mean_estimate(values, confidence=confidence, unit="dB")
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    assert (mean.low, mean.high) == pytest.approx((expected.low, expected.high))
    assert (mean.value, mean.n, mean.unit) == (pytest.approx(values.mean()), n, "dB")


def test_bounds_clip_the_ends_and_nothing_else() -> None:
    values = [0.1, 0.9, 0.2]
    free = mean_estimate(values)
    assert (free.low < 0, free.high > 0.9) == (True, True)
    both = mean_estimate(values, bounds=(0.0, 0.8))
    assert (both.value, both.low, both.high) == (free.value, 0.0, 0.8)
    below = mean_estimate(values, bounds=(0.0, np.inf))
    assert (below.low, below.high) == (0.0, free.high)


def test_tensors_and_arrays_have_one_mean() -> None:
    """In float64, also where the values came as float32."""
    values = stream(0, "float32").random(40).astype(np.float32)
    assert mean_estimate(torch.from_numpy(values)) == mean_estimate(values.astype(np.float64))


@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("right", [True, False])
def test_equal_shares_reach_as_far_as_the_exact_binomial_interval(n: int, right: bool) -> None:
    share = share_estimate(np.full(n, float(right)))
    exact = stats.binomtest(n * right, n).proportion_ci(0.95, method="exact")
    assert (share.low, share.high) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_unequal_shares_have_students_interval_within_0_and_1() -> None:
    low, high = stats.ttest_1samp([0.4, 0.5, 0.6], 0.0).confidence_interval(0.95)
    inside, wide = share_estimate([0.4, 0.5, 0.6]), share_estimate([0.0, 1.0])
    assert (inside.low, inside.high) == pytest.approx((low, high))
    assert (wide.low, wide.high) == (0.0, 1.0)


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("of", [1, 8, 500])
def test_clopper_pearson_is_scipys_and_statsmodels(of: int, confidence: float) -> None:
    for wrong in sorted({0, 1, of // 2, of - 1, of}):
        ends = clopper_pearson(wrong, of, confidence)
        exact = stats.binomtest(wrong, of).proportion_ci(confidence, method="exact")
        assert ends == pytest.approx((exact.low, exact.high), rel=1e-7, abs=1e-12)
        beta = proportion_confint(wrong, of, alpha=1 - confidence, method="beta")
        assert ends == pytest.approx(beta, rel=1e-7, abs=1e-12)
        upper = clopper_pearson_upper(np.array([[wrong]]), of, confidence)
        assert upper.tolist() == [[ends[1]]]


@pytest.mark.parametrize("confidence", CONFIDENCES)
@pytest.mark.parametrize("n", [1, 8, 1000])
def test_unseen_leaves_the_tail_to_no_exception_at_all(n: int, confidence: float) -> None:
    assert (1 - unseen(n, confidence)) ** n == pytest.approx((1 - confidence) / 2)
    assert unseen(n, confidence) == pytest.approx(clopper_pearson(0, n, confidence)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_estimate([]), r"\[0\]; expected \[n\]"),
        (lambda: mean_estimate([[1.0]]), r"\[1, 1\]; expected \[n\]"),
        (lambda: share_estimate([0.5, np.nan]), r"1 of 2 scores are not finite"),
    ],
)
def test_values_without_a_mean_are_refused(call, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()
