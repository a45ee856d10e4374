"""Bounds from one run, against worked examples, literal loops and known mechanisms."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.privacy.estimate import epsilon_of_mu
from leakgauge.privacy.number_of_guesses import (
    accuracy_of_mu,
    guesses_for,
    mu_of_accuracy,
    smallest_seen,
)
from leakgauge.privacy.one_run import (
    Guesses,
    epsilon_one_run,
    epsilon_one_run_f_dp,
    guess,
    mu_one_run,
    p_value_f_dp,
    p_value_one_run,
    refuted,
)
from leakgauge.privacy.profile import Profile, gaussian_least_false_positives
from support.references import one_run as literal


def test_p_value_by_hand() -> None:
    """Two fair coins: tails 1/4, 3/4, 1; the largest mean mass below 2 is 1/2, of one or two."""
    assert p_value_one_run(Guesses(2, 2, 2), 0.0, 0.0) == pytest.approx(0.25)
    assert p_value_one_run(Guesses(2, 2, 2), 0.0, 0.1) == pytest.approx(0.25 + 2 * 2 * 0.1 * 0.5)
    assert p_value_one_run(Guesses(2, 2, 0), 0.0, 0.1) == 1.0


def test_without_delta_it_is_the_binomial_tail() -> None:
    rate = 1 / (1 + math.exp(-0.7))
    expected = stats.binom.sf(29, 40, rate)
    assert p_value_one_run(Guesses(1000, 40, 30), 0.7, 0.0) == pytest.approx(expected)


def test_without_an_error_epsilon_has_a_closed_form() -> None:
    rate = 0.05 ** (1 / 60)
    expected = math.log(rate / (1 - rate))
    assert epsilon_one_run(Guesses(60, 60, 60), 0.0, confidence=0.95) == pytest.approx(expected)


@pytest.mark.parametrize(("mu", "expected"), [(0.0, 0.5), (1.0, 0.691462), (3.0, 0.933193)])
def test_one_guess_on_a_gaussian_has_a_closed_form(mu: float, expected: float) -> None:
    """The best guess on one coin is right with probability Phi(mu / 2)."""
    found = p_value_f_dp(Guesses(1, 1, 1), gaussian_least_false_positives(mu))
    assert found == pytest.approx(expected, abs=1e-5)


CASES = some.integers(1, 30).flatmap(
    lambda m: some.integers(1, m).flatmap(
        lambda r: some.tuples(some.just(m), some.just(r), some.integers(0, r))
    )
)


@settings(max_examples=60, deadline=None)
@given(CASES, some.sampled_from([0.0, 0.3, 2.0]), some.sampled_from([0.0, 1e-5, 0.02]))
def test_p_value_equals_the_loops_of_the_paper(
    case: tuple[int, int, int], epsilon: float, delta: float
) -> None:
    expected = literal.steinke_p_value(*case, epsilon, delta)
    assert p_value_one_run(Guesses(*case), epsilon, delta) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(CASES, some.sampled_from([0.0, 0.4, 1.5]), some.sampled_from([0.01, 0.2, 0.7]))
def test_refutation_equals_the_recursion_of_the_paper(
    case: tuple[int, int, int], mu: float, significance: float
) -> None:
    expected = literal.mahloujifar_refutes(*case, significance, mu)
    found = refuted(Guesses(*case), gaussian_least_false_positives(mu), significance)
    assert bool(found) == expected


JAX_PRIVACY = [
    # (m, r, v), delta, confidence, epsilon, epsilon by f-DP: jax-privacy 2.0.0
    ((1000, 100, 95), 1e-5, 0.95, 2.165176, 3.323300),
    ((1000, 100, 100), 1e-5, 0.99, 2.989193, 4.463940),
    ((200, 200, 140), 1e-5, 0.99, 0.482933, 0.883851),
    ((500, 50, 45), 1e-6, 0.95, 1.393198, 2.391607),
    ((2000, 2000, 1200), 1e-5, 0.95, 0.329231, 0.609551),
    ((100, 40, 30), 0.01, 0.9, 0.0, 0.455165),
]


@pytest.mark.parametrize(("case", "delta", "confidence", "plain", "f_dp"), JAX_PRIVACY)
def test_bounds_equal_those_of_jax_privacy(
    case: tuple[int, int, int], delta: float, confidence: float, plain: float, f_dp: float
) -> None:
    found = Guesses(*case)
    one, other = (
        measure(found, delta, confidence=confidence)
        for measure in (epsilon_one_run, epsilon_one_run_f_dp)
    )
    assert one == pytest.approx(plain, abs=2e-6)
    assert other == pytest.approx(f_dp, abs=2e-6)
    mu = mu_one_run(found, confidence=confidence)
    for near, expected in ((mu - 1e-6, True), (mu + 1e-6, False)):
        assert literal.mahloujifar_refutes(*case, 1 - confidence, near) == expected


def test_randomised_response_is_within_both_bounds() -> None:
    """Known mechanism: each of m coins is reported correctly with rate e^eps / (1 + e^eps)."""
    epsilon, m = 1.0, 50
    claim = Profile(0.0, ((epsilon, 0.0),))
    for v in (25, 35, 40, 45, 50):
        truth = stats.binom.sf(v - 1, m, 1 / (1 + math.exp(-epsilon)))
        found = Guesses(m, m, v)
        assert p_value_one_run(found, epsilon, 0.0) == pytest.approx(truth)
        assert p_value_f_dp(found, claim.least_false_positives) >= truth * (1 - 1e-6)


def play(mu: float, m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng([seed, m])
    included = generator.random(m) < 0.5
    return included * mu + generator.standard_normal(m), included


@cache
def bounds(m: int, made: int, correct: int) -> tuple[float, float]:
    found = Guesses(m, made, correct)
    return tuple(
        measure(found, 1e-5, confidence=0.95) for measure in (epsilon_one_run, epsilon_one_run_f_dp)
    )


@pytest.mark.calibration
@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0])
def test_bounds_of_a_gaussian_mechanism_stay_below_the_truth(mu: float) -> None:
    m, seeds = 200, 1000
    made = guesses_for(m, gaussian_least_false_positives(mu), confidence=0.95)
    truth = epsilon_of_mu(mu, 1e-5)
    low = np.array(
        [bounds(m, made, guess(*play(mu, m, seed), made).correct) for seed in range(seeds)]
    )
    above = (low > truth).sum(axis=0)
    assert (above <= stats.binom.ppf(0.999, seeds, 0.05)).all(), above
    assert mu == 0 or (low.mean(axis=0) > 0.02).all()


@pytest.mark.calibration
def test_bounds_grow_towards_the_truth_with_the_canaries() -> None:
    truth, shares = epsilon_of_mu(1.0, 1e-5), []
    for m in (100, 1000, 10000):
        made = guesses_for(m, gaussian_least_false_positives(1.0), confidence=0.95)
        low = [bounds(m, made, guess(*play(1.0, m, seed), made).correct) for seed in range(20)]
        shares.append(np.mean(low, axis=0) / truth)
    assert (np.diff(shares, axis=0) > 0.05).all()
    assert shares[-1][0] > 0.45
    assert shares[-1][1] > 0.6


def test_a_perfect_guess_shows_no_more_than_canaries_allow() -> None:
    few, many = (epsilon_one_run(Guesses(m, m // 2, m // 2), 1e-5) for m in (100, 1000))
    assert 0 < few < many < 10


def test_the_smallest_seen_violation_is_where_refutation_begins() -> None:
    least = gaussian_least_false_positives(0.3)
    mu = smallest_seen(1000, 176, least)
    assert mu is not None
    assert mu > 0.3
    fewest = round(176 * accuracy_of_mu(mu, 0.176))
    assert bool(refuted(Guesses(1000, 176, fewest), least, 0.01))
    assert not bool(refuted(Guesses(1000, 176, fewest - 1), least, 0.01))
    assert smallest_seen(20, 20, gaussian_least_false_positives(3.0)) is None


@pytest.mark.parametrize("share", [1.0, 0.3, 0.02])
def test_accuracy_is_that_of_many_gaussian_scores(share: float) -> None:
    scores, included = play(1.5, 200_000, 0)
    found = guess(scores, included, int(share * 200_000))
    expected = accuracy_of_mu(1.5, share)
    assert found.correct / found.made == pytest.approx(expected, abs=0.01)
    assert mu_of_accuracy(expected, share) == pytest.approx(1.5)


def test_planted_canaries_are_guessed() -> None:
    scores, included = play(20.0, 300, 1)
    assert guess(scores, included, 200).correct == 200
    assert guess(-scores, included, 200).correct == 0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: Guesses(10, 11, 3), "11 guesses on 10 canaries"),
        (lambda: Guesses(10, 5, 6), "6 of 5 guesses are correct"),
        (lambda: guess(np.array([np.nan, 1]), np.array([True, False]), 2), "not finite"),
        (lambda: guess(np.zeros(3), np.zeros(2, bool), 2), r"expected both \[m\]"),
        (lambda: epsilon_one_run(Guesses(4, 4, 4), 0.0, confidence=95), "confidence is 95"),
        (lambda: p_value_one_run(Guesses(4, 4, 4), 1.0, 1.5), "delta is 1.5"),
    ],
)
def test_bad_input_is_refused(bad: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bad()  # type: ignore[operator]
