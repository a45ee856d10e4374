"""Differences of two estimates: worked examples, other intervals, and their coverage."""

import functools

import numpy as np
import pytest
from scipy import special, stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import (
    clopper_pearson,
    difference,
    has_interval,
    mean_estimate,
    no_difference,
)


@functools.cache
def wilson(hits: int, of: int) -> Estimate:
    low, high = stats.binomtest(hits, of).proportion_ci(method="wilson")
    return Estimate(hits / of, low, high, of)


def test_the_paper_of_the_method_has_the_same_interval() -> None:
    """Newcombe 1998, table II, method 10, example (a): 56/70 minus 48/80."""
    found = difference(wilson(48, 80), wilson(56, 70))
    assert found.value == pytest.approx(0.2)
    assert (round(found.low, 4), round(found.high, 4)) == (0.0524, 0.3339)


def test_asymmetric_ends_go_to_the_side_where_they_matter() -> None:
    """A worked example: 0.6 - 0.9; below sqrt(0.03^2 + 0.04^2), above sqrt(0.08^2 + 0.06^2)."""
    before, after = Estimate(0.9, 0.84, 0.94, 100), Estimate(0.6, 0.57, 0.68, 80)
    found = difference(before, after)
    assert (found.low, found.high) == (pytest.approx(-0.35), pytest.approx(-0.2))
    assert found.n == 80
    back = difference(after, before)
    assert (back.low, back.high) == (pytest.approx(0.2), pytest.approx(0.35))


def test_symmetric_intervals_give_the_normal_interval() -> None:
    z = float(special.ndtri(0.975))
    before, after = (Estimate(v, v - z * s, v + z * s, 9) for v, s in ((1.0, 0.3), (5.0, 0.4)))
    found = difference(before, after)
    assert found.low == pytest.approx(4 - z * 0.5)
    assert found.high == pytest.approx(4 + z * 0.5)


def test_a_difference_of_shares_stays_possible() -> None:
    found = difference(Estimate(1.0, 0.9, 1.0, 50), Estimate(0.0, 0.0, 0.1, 50))
    assert found.low == -1.0
    assert found.high < -0.8


def test_equal_figures_hold_0_and_a_run_differs_from_itself_by_0() -> None:
    one = Estimate(0.99, 0.95, 1.0, 300)
    found = difference(one, one)
    assert found.low < found.value == 0.0 < found.high
    zero = no_difference(one)
    assert (zero.value, zero.low, zero.high, zero.n) == (0.0, 0.0, 0.0, 300)


def test_a_figure_of_one_record_has_no_interval() -> None:
    assert not has_interval(mean_estimate([21.0]))
    assert has_interval(mean_estimate([21.0, 22.0]))


def test_different_confidences_are_refused() -> None:
    with pytest.raises(InputError, match=r"0\.95 and 0\.9;"):
        difference(Estimate(0.5, 0.4, 0.6, 10), Estimate(0.5, 0.4, 0.6, 10, confidence=0.9))


WITHIN = 0.015
"""Three standard errors of a share of 0.95 in 2000 repeats."""


@pytest.mark.calibration
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.9, 0.6), (0.97, 0.95)])
def test_intervals_of_shares_cover_as_often_as_they_say(p: float, q: float) -> None:
    rng = stream(0, "shares", str(p))
    drawn = zip(rng.binomial(150, p, 2000), rng.binomial(100, q, 2000), strict=True)
    found = [difference(wilson(int(a), 150), wilson(int(b), 100)) for a, b in drawn]
    covered = np.mean([one.low <= q - p <= one.high for one in found])
    assert abs(covered - 0.95) < WITHIN


@pytest.mark.calibration
def test_intervals_of_means_cover_as_often_as_they_say() -> None:
    rng = stream(0, "means")
    wide, narrow = rng.normal(2.0, 3.0, (2000, 40)), rng.normal(1.5, 1.0, (2000, 60))
    found = [
        difference(mean_estimate(a), mean_estimate(b)) for a, b in zip(wide, narrow, strict=True)
    ]
    assert abs(np.mean([one.low <= -0.5 <= one.high for one in found]) - 0.95) < WITHIN


@pytest.mark.calibration
def test_shared_trials_make_intervals_too_wide_and_never_too_narrow() -> None:
    """Both runs evaluate the same trials, so their figures move together."""
    rng = stream(0, "shared")
    shared = rng.normal(0.0, 1.0, (1000, 50))
    own = rng.normal(0.3, 0.5, (1000, 50))
    found = [
        difference(mean_estimate(a), mean_estimate(b))
        for a, b in zip(shared, shared + own, strict=True)
    ]
    assert np.mean([one.low <= 0.3 <= one.high for one in found]) > 0.99


@pytest.mark.calibration
def test_exact_intervals_cover_at_least_as_often_as_they_say() -> None:
    rng = stream(0, "exact")
    drawn = rng.binomial(60, 0.98, (1000, 2))

    def exact(hits: int) -> Estimate:
        return Estimate(hits / 60, *clopper_pearson(hits, 60), 60)

    found = [difference(exact(int(a)), exact(int(b))) for a, b in drawn]
    assert np.mean([one.low <= 0 <= one.high for one in found]) >= 0.95
