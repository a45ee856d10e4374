"""Whole scores: exact limits, exact epsilons of drawn canaries, and what they refute."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import integrate, special, stats

from leakgauge import InputError
from leakgauge.privacy.dp_audit import audit_one_run
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.one_run import LARGEST_MU
from leakgauge.privacy.profile import Profile, profile_of
from leakgauge.privacy.whole_audit import KnownShape, audit_gaussian_scores, audit_known_shape
from leakgauge.privacy.whole_scores import (
    ODD,
    Shift,
    epsilon_of_draws,
    mu_of_scores,
    shape_p_value,
    shift_of,
)

DELTA = 1e-5


def mu_for(epsilon: float) -> float:
    """The mu of a Gaussian mechanism with an epsilon, by bisection."""
    low, high = 1e-3, 50.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of_mu(middle, DELTA) < epsilon else (low, middle)
    return low


@cache
def gaussian_claim(epsilon: float) -> Profile:
    mu = mu_for(epsilon)
    return profile_of(lambda delta: epsilon_of_mu(mu, delta), DELTA)


def tail_by_hand(t: float, df: float, center: float) -> float:
    """P(T > t) of a noncentral t: the normal tail, averaged over the spread's law."""

    def part(spread: float) -> float:
        scale = math.sqrt(df)
        return float(stats.chi.pdf(spread * scale, df) * scale * special.ndtr(center - t * spread))

    width = 12 / math.sqrt(2 * df)
    return float(integrate.quad(part, max(0, 1 - width), 1 + width, epsabs=1e-12)[0])


@pytest.mark.parametrize(
    ("value", "error", "df"), [(1.0, 0.5, 6), (0.5, 0.06, 998), (9.0, 0.3, 40)]
)
def test_the_limit_has_its_tail(value: float, error: float, df: float) -> None:
    for confidence in (0.9, 0.99):
        low = Shift(value, error, df).low(confidence)
        expected = 1 - confidence if low > 0 else tail_by_hand(value / error, df, 0.0)
        assert tail_by_hand(value / error, df, low / error) == pytest.approx(expected, abs=1e-7)
        assert low < value < Shift(value, error, df).high(confidence)


@pytest.mark.calibration
@pytest.mark.parametrize(
    ("mu", "n"), [(0.0, 12), (0.3, 100), pytest.param(3.0, 40, marks=pytest.mark.slow)]
)
def test_limits_are_wrong_as_often_as_they_say(mu: float, n: int) -> None:
    """600 samples at 90 %, where 60 wrong ones are expected on each side."""
    rng, wrong = np.random.default_rng(7), np.zeros(2)
    for _ in range(600):
        out, inside = rng.normal(5, 3, n // 2), rng.normal(5 + 3 * mu, 3, n // 2)
        found = mu_of_scores(out, inside, confidence=0.9)
        wrong += found.low > mu, found.high < mu
    sides = wrong if mu > 0 else wrong[:1]  # a mu of 0 has no upper limit below it
    assert (np.abs(sides - 60) < 4 * math.sqrt(600 * 0.09)).all(), wrong


def test_scores_without_spread_show_what_can_be_shown() -> None:
    same, apart = np.zeros(5), np.ones(5)
    assert mu_of_scores(same, same).value == 0.0
    assert mu_of_scores(same, apart).value == LARGEST_MU
    assert shift_of(apart, same).low(0.99) == 0.0


@pytest.mark.parametrize(
    ("out", "inside", "message"),
    [([], [1.0, 2.0, 3.0], "0 scores are out"), ([1.0], [2.0], "three or more"),
     ([1.0, np.nan], [2.0], "not finite")],
)  # fmt: skip
def test_bad_scores_are_refused(out: list[float], inside: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shift_of(np.array(out), np.array(inside))


@pytest.mark.parametrize(
    ("shares", "mu"),
    [([0.0, 1.0], 1.0), ([0.9, 0.1], 1.0), ([0.5, 0.3, 0.2], 0.7), ([0.0, 0.5, 0.5], 2.0)],
)
@pytest.mark.parametrize("delta", [1e-5, 0.05])
def test_the_epsilon_of_draws_has_its_delta(shares: list[float], mu: float, delta: float) -> None:
    """By the hockey-stick divergence of both densities, on a grid; the larger order counts."""
    at = np.linspace(-12, 12 + mu * len(shares), 200_001)
    out = stats.norm.pdf(at)
    inside = sum(share * stats.norm.pdf(at - mu * k) for k, share in enumerate(shares))
    found = epsilon_of_draws(np.array(shares), mu, delta)
    ratio = math.exp(found)
    orders = (np.maximum(inside - ratio * out, 0), np.maximum(out - ratio * inside, 0))
    reached = max(float(np.trapezoid(one, at)) for one in orders)
    if found > 0:
        assert reached == pytest.approx(delta, rel=1e-3)
    else:
        assert reached <= delta


def test_the_sum_over_steps_shows_less_than_the_steps() -> None:
    steps, rate = 60, 0.05
    shares = stats.binom.pmf(np.arange(steps + 1), steps, rate)
    law = pld.from_gaussian_mechanism(1.0, sampling_prob=rate).self_compose(steps)
    most = law.get_epsilon_for_delta(DELTA)
    assert 0.5 * most < epsilon_of_draws(shares, steps**-0.5, DELTA) < most


@pytest.mark.parametrize(
    ("spread", "draw"),
    [
        ("wider", lambda rng: rng.normal(0, 2, 400)),
        ("heavy", lambda rng: rng.standard_t(2, 400) / 2),
        ("two peaks", lambda rng: rng.choice([-1.0, 1.0], 400) + rng.normal(0, 0.1, 400)),
    ],
)
def test_scores_of_another_shape_are_refused(
    spread: str, draw: Callable[[np.random.Generator], np.ndarray]
) -> None:
    rng = np.random.default_rng(3)
    scores, included = np.concatenate([rng.normal(0, 1, 400), draw(rng)]), np.arange(800) >= 400
    with pytest.raises(InputError, match="not Gaussian with equal spread"):
        audit_gaussian_scores(scores, included, gaussian_claim(1.0))
    assert shape_p_value(rng.normal(0, 1, 400), rng.normal(2, 1, 400)) > ODD


def scored(mu: float, m: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    included = rng.random(m) < 0.5
    return rng.normal(0, 1, m) + mu * included, included


@pytest.mark.slow
@pytest.mark.calibration
def test_a_true_claim_is_refuted_as_seldom_as_it_says() -> None:
    rng, claim = np.random.default_rng(5), gaussian_claim(2.0)
    refuted = sum(
        audit_gaussian_scores(*scored(mu_for(2.0), 60, rng), claim, confidence=0.9).flagged
        for _ in range(300)
    )
    assert abs(refuted - 30) < 4 * math.sqrt(300 * 0.09)


@pytest.mark.parametrize(
    ("claimed", "most"), [pytest.param(1.0, 1.6, marks=pytest.mark.slow), (4.0, 4.8)]
)
def test_1000_canaries_flag_small_violations(claimed: float, most: float) -> None:
    """The aims: half of the runs at this epsilon are flagged, where guesses need 2.5 and 8.8."""
    shape = KnownShape(Shift(0.0, 2 / math.sqrt(1000), 998), epsilon_of_mu, 1000)
    seen = audit_known_shape(shape, gaussian_claim(claimed)).smallest_seen
    assert seen is not None
    assert round(seen, 1) <= most
    rng, mu = np.random.default_rng(1), mu_for(seen)
    runs = [scored(mu, 1000, rng) for _ in range(40)]
    flagged = [audit_gaussian_scores(*run, gaussian_claim(claimed)).flagged for run in runs]
    assert 8 < sum(flagged) < 32
    assert not any(audit_one_run(*run, gaussian_claim(claimed)).flagged for run in runs[:5])


def test_both_tests_of_one_run_make_one_audit() -> None:
    run = scored(mu_for(4.0), 400, np.random.default_rng(2))
    claim = gaussian_claim(0.5)
    first = audit_one_run(*run, claim, share=0.1)
    both = first.beside(audit_gaussian_scores(*run, claim, share=0.9))
    assert both.refuted_by[-1] == "whole scores"
    assert [bound.method for bound in both.bounds][-1] == "one run (whole scores)"
    assert both.bounds[-1].low > both.bounds[1].low > both.bounds[0].low
    assert both.smallest_seen is not None
    assert first.smallest_seen is not None
    assert both.smallest_seen < first.smallest_seen


def test_the_shape_of_equal_and_of_tiny_scores() -> None:
    rng = np.random.default_rng(0)
    out, inside = rng.normal(size=(2, 200))
    assert shape_p_value(np.zeros(50), np.zeros(50)) == 0.0
    assert shape_p_value(out, np.ones(50)) == 0.0
    assert shape_p_value(1e-30 * out, 1e-30 * inside) == pytest.approx(shape_p_value(out, inside))
