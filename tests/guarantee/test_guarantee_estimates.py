"""Epsilon from errors: exact intervals, known figures, and no promise that is broken by chance."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.guarantee import (
    DPSGDMechanism,
    Errors,
    choose_threshold,
    epsilon_clopper_pearson,
    epsilon_gaussian_dp,
    epsilon_of_mu,
    errors_at,
    largest_showable,
    mu_clopper_pearson,
    theory_of,
    threshold_in_sample,
)
from leakgauge.privacy.accounting import delta_gaussian, epsilon_gaussian
from leakgauge.privacy.many_runs import epsilon_objective, fewest_errors
from support.references import guarantee as literal

Floats = NDArray[np.float64]
DELTA = 1e-5


def scores(mu: float, n: int, *names: str | int) -> tuple[Floats, Floats]:
    rng = stream(0, "scores", *names)
    return rng.normal(size=n), rng.normal(mu, size=n)


# --- figures that are known -----------------------------------------------------------------------


def test_clopper_pearson_figure_of_other_libraries() -> None:
    """tp 500 of 500, fp 0 of 500, significance 0.01 (each side 0.005), delta 0."""
    found = epsilon_clopper_pearson(Errors(0, 0, 500, 500), 0.0, confidence=0.99)
    assert found.low == pytest.approx(4.54, abs=0.005)


@pytest.mark.parametrize(
    ("trials", "value", "low"), [(5000, math.log(2500), 6.52), (20_000, math.log(10_000), 7.905)]
)
def test_largest_showable(trials: int, value: float, low: float) -> None:
    most = largest_showable(trials, DELTA)
    assert most.value == pytest.approx(value, abs=1e-4)
    assert most.low == pytest.approx(low, abs=0.005)
    assert most.high == math.inf
    assert most.n == trials


def test_the_paper_s_setting_in_theory() -> None:
    """Clip 2, sigma 0.1: 96.9 by the textbook, 284.39 exactly, and more for a replaced record."""
    found = theory_of(DPSGDMechanism(2.0, 0.1), distance=0.1, delta=DELTA, attributes=14)
    assert found.mechanism_classic.value == pytest.approx(96.9, abs=0.01)
    assert not found.mechanism_classic.valid
    assert found.mechanism_exact_at_clip.value == pytest.approx(284.39, abs=0.01)
    assert found.mechanism_exact.value == pytest.approx(epsilon_gaussian(4.0, 0.1, DELTA).value)
    assert found.pair_exact.value == pytest.approx(4.377, abs=5e-4)
    assert found.per_attribute_classic == pytest.approx(96.9 / 14, abs=0.001)


def test_theory_of_a_batch_and_of_no_distance() -> None:
    """The mean of B gradients moves by d / B and its noise has sigma / sqrt(B)."""
    found = theory_of(DPSGDMechanism(2.0, 0.1), distance=0.4, delta=DELTA, attributes=3, batch=16)
    assert found.pair_exact.value == pytest.approx(4.377, abs=5e-4)
    nothing = theory_of(DPSGDMechanism(2.0, 0.1), distance=0.0, delta=DELTA, attributes=3)
    assert nothing.pair_exact.value == 0.0


# --- intervals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, 1, 7, 300, 499, 500])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_low_end_is_made_of_exact_binomial_ends(wrong: int, confidence: float) -> None:
    """Against SciPy's binomial test and statsmodels, for both orders of the errors."""
    other, n, m = 3, 500, 200
    fpr = stats.binomtest(wrong, n).proportion_ci(confidence, method="exact")
    fnr = proportion_confint(other, m, alpha=1 - confidence, method="beta")

    def epsilon(fpr: float, fnr: float) -> float:
        orders = [(1 - DELTA - fnr, fpr), (1 - DELTA - fpr, fnr)]
        ratios = [a / b if b > 0 else math.inf for a, b in orders if a > 0]
        return max(0.0, *(math.log(ratio) for ratio in ratios)) if ratios else 0.0

    for errors in (Errors(wrong, other, n, m), Errors(other, wrong, m, n)):
        found = epsilon_clopper_pearson(errors, DELTA, confidence=confidence)
        assert found.low == pytest.approx(epsilon(fpr.high, fnr[1]), rel=1e-9)
        assert found.high == pytest.approx(epsilon(fpr.low, fnr[0]), rel=1e-6)
        assert found.low <= found.value <= found.high
        assert found.n == n + m
        mu = mu_clopper_pearson(errors, confidence=confidence)
        expected = stats.norm.isf(fpr.high) - stats.norm.ppf(fnr[1])
        assert mu.low == pytest.approx(max(0.0, expected), rel=1e-9)


@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_mu_of_the_exact_errors(mu: float) -> None:
    """A million trials that err as often as the best test does, at any threshold."""
    n = 10**6
    for threshold in (0.0, mu / 2, mu):
        errors = Errors(
            round(n * stats.norm.sf(threshold)), round(n * stats.norm.cdf(threshold - mu)), n, n
        )
        assert mu_clopper_pearson(errors).value == pytest.approx(mu, abs=1e-4)
        found = epsilon_gaussian_dp(errors, DELTA)
        assert found.value == pytest.approx(epsilon_gaussian(mu, 1.0, DELTA).value, rel=1e-3)
        # What any test of a mechanism shows cannot exceed its epsilon at the same delta.
        shown = epsilon_clopper_pearson(errors, DELTA).value
        assert delta_gaussian(shown, mu) >= DELTA


@pytest.mark.parametrize("delta", [1e-9, DELTA, 0.3])
def test_a_shift_that_delta_covers_is_no_epsilon(delta: float) -> None:
    edge = 2 * stats.norm.isf((1 - delta) / 2)  # at epsilon 0 its delta is this one
    for mu in (1e-300, 1e-16, edge / 2, edge * 0.999):
        assert epsilon_of_mu(mu, delta) == 0.0
        theory = theory_of(DPSGDMechanism(2.0, 1.0), distance=mu, delta=delta, attributes=3)
        assert theory.pair_exact.value == 0.0
    assert epsilon_of_mu(edge * 1.01, delta) > 0


def test_epsilon_of_mu_ends() -> None:
    assert epsilon_of_mu(0.0, DELTA) == 0.0
    assert epsilon_of_mu(-1.0, DELTA) == 0.0
    assert epsilon_of_mu(math.inf, DELTA) == math.inf
    assert epsilon_of_mu(1.0, DELTA) == pytest.approx(4.377, abs=5e-4)


# --- thresholds -----------------------------------------------------------------------------------


def in_sample(null: np.ndarray, alternative: np.ndarray, delta: float) -> float:
    """The paper's estimate: at the best threshold for the trials that it is scored on."""
    errors = errors_at(null, alternative, threshold_in_sample(null, alternative, delta))
    return epsilon_clopper_pearson(errors, delta).value


@pytest.mark.parametrize("mu", [0.0, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_in_sample_is_the_literal_maximum(mu: float, delta: float) -> None:
    null, alternative = scores(mu, 60, "in sample", int(mu))
    alternative[:7] = null[:7]  # ties
    found = in_sample(null, alternative, delta)
    expected = literal.largest_epsilon(null.tolist(), alternative.tolist(), delta)
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_threshold_has_the_largest_lower_bound() -> None:
    null, alternative = scores(1.5, 200, "best")
    objective = epsilon_objective(DELTA)
    chosen = choose_threshold(null, alternative, objective)
    best = epsilon_clopper_pearson(errors_at(null, alternative, chosen), DELTA).low
    for cut in np.concatenate([null, alternative, [-9.0, 9.0]]):
        assert epsilon_clopper_pearson(errors_at(null, alternative, cut), DELTA).low <= best + 1e-9


@pytest.mark.calibration
def test_in_sample_raises_an_alarm_without_any_leak_and_held_out_does_not() -> None:
    """The paper's maximum is biased upward: scores without any difference show it."""
    best, lows = [], []
    for run in range(40):
        chosen, judged = (scores(0.0, 500, "none", role, run) for role in ("choose", "judge"))
        threshold = choose_threshold(*chosen, epsilon_objective(DELTA))
        lows.append(epsilon_clopper_pearson(errors_at(*judged, threshold), DELTA).low)
        best.append(in_sample(*judged, DELTA))
    assert min(best) > 0.1
    assert sum(low > 0 for low in lows) <= 4


@pytest.mark.calibration
def test_equal_scores_show_nothing() -> None:
    same = np.full(50, 3.0)
    threshold = choose_threshold(same, same, fewest_errors)
    errors = errors_at(same, same, threshold)
    assert epsilon_clopper_pearson(errors, DELTA).value == 0.0
    assert epsilon_gaussian_dp(errors, DELTA).value == 0.0
    assert in_sample(same, same, DELTA) == 0.0


def shown(mu: float, half: int, *names: str | int) -> tuple[float, float]:
    """Lower ends of both estimates for N(0, 1) against N(mu, 1)."""
    chosen, judged = (scores(mu, half, role, *names) for role in ("choose", "judge"))
    errors = [
        errors_at(*judged, choose_threshold(*chosen, objective))
        for objective in (epsilon_objective(DELTA), fewest_errors)
    ]
    return epsilon_clopper_pearson(errors[0], DELTA).low, epsilon_gaussian_dp(errors[1], DELTA).low


@pytest.mark.parametrize("mu", [0.02, 0.3, 1.0, 3.0])
def test_the_lower_bound_is_sound(mu: float) -> None:
    """100 audits of each: with confidence 95 % in at most about 5 % beyond the exact epsilon."""
    exact = epsilon_gaussian(mu, 1.0, DELTA).value
    lows = np.array([shown(mu, 500, run) for run in range(100)])
    # 11 of 100 would come with a probability of 1.1 % where each is beyond with 5 %.
    assert ((lows > exact).sum(axis=0) <= 10).all()


def test_the_gaussian_estimate_is_tight() -> None:
    """mu = 1, 20,000 trials: within 10 % of the exact epsilon in each of 10 runs."""
    exact = epsilon_gaussian(1.0, 1.0, DELTA).value
    for run in range(10):
        chosen, judged = (scores(1.0, 10_000, role, run) for role in ("choose", "judge"))
        threshold = choose_threshold(*chosen, fewest_errors)
        found = epsilon_gaussian_dp(errors_at(*judged, threshold), DELTA)
        assert found.value == pytest.approx(exact, rel=0.1)
        assert found.low > 0.87 * exact


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [2, 6, 10, 11])
def test_trials_that_can_show_nothing(trials: int) -> None:
    with pytest.raises(InputError, match="expected 12 or more"):
        largest_showable(trials, 0.0)
    assert largest_showable(12, 0.0).low > 0


@pytest.mark.parametrize("delta", [0.1, 0.5, 0.9])
def test_the_least_trials_named_are_enough_and_no_fewer(delta: float) -> None:
    with pytest.raises(InputError) as refused:
        largest_showable(2, delta)
    least = int(str(refused.value).split("expected ")[1].split(" ")[0])
    assert largest_showable(least, delta).low > 0
    with pytest.raises(InputError):
        largest_showable(least - 2, delta)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_delta_outside(delta: float) -> None:
    with pytest.raises(InputError, match="delta is"):
        epsilon_clopper_pearson(Errors(0, 0, 9, 9), delta)
    with pytest.raises(InputError, match="delta is"):
        largest_showable(5000, delta)


@pytest.mark.parametrize("counts", [(-1, 0, 9, 9), (10, 0, 9, 9), (0, 0, 0, 9)])
def test_impossible_counts(counts: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError):
        Errors(*counts)
