"""Planted clients: directions, exact limits against Monte Carlo, and no false alarms."""

import math
from functools import cache

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.privacy.dp_audit import DpAudit
from leakgauge.privacy.planted_clients import (
    Planted,
    PlantedScores,
    audit_planted,
    claim_of_clients,
)
from leakgauge.results.statistics import Floats

SIZE, DELTA = 300, 1e-5
PLANTED = Planted((True, True, False, True), seed=5)


claimed_of = cache(claim_of_clients)


def scored(rng: np.random.Generator, noise: float, *, rounds: int = 6, other: float = 0) -> DpAudit:
    """Return the audit of releases with a stated noise of 1, and a fixed vector beside it."""
    scores, members = PlantedScores(), np.array(PLANTED.members)
    beside = np.zeros(SIZE)
    beside[:3] = other  # far from Gaussian
    for number in range(1, rounds + 1):
        directions = PLANTED.directions(number + int(rng.integers(10**6)), SIZE)
        moved = directions[members].sum(0) + rng.normal(0, noise, SIZE) + beside
        scores.add(moved, directions, members, noise=1.0)
    return audit_planted(scores, claimed_of(1.0, rounds, DELTA))


def test_directions_are_orthonormal_and_new_in_each_round() -> None:
    first, second = (PLANTED.directions(number, SIZE) for number in (1, 2))
    np.testing.assert_allclose(first @ first.T, np.eye(4), atol=1e-12)
    assert abs(first @ second.T).max() < 0.3
    np.testing.assert_array_equal(first, PLANTED.directions(1, SIZE))


def test_directions_are_uniform_on_the_sphere() -> None:
    """The square of a coordinate of a uniform direction is Beta(1/2, (n - 1) / 2)."""
    drawn = np.array([PLANTED.directions(number, 8)[[0, 3]] for number in range(400)])
    for k in range(2):
        squares = drawn[:, k, 1] ** 2
        assert stats.kstest(squares, stats.beta(0.5, 3.5).cdf).pvalue > 1e-3
        positive = int((drawn[:, k, 0] > 0).sum())
        assert stats.binomtest(positive, 400).pvalue > 1e-3, "signs are fair"


@pytest.mark.slow
def test_limit_covers_the_truth_as_often_as_it_says() -> None:
    """At a confidence of 99 % in 10 of 1,000 cases the limit is too large."""
    rng, wrong, count, size = np.random.default_rng(0), 0, 12, 500
    for _ in range(1000):
        scores = PlantedScores(list(rng.normal(2, 1, count)), float(rng.chisquare(size)), size, 1)
        wrong += scores.shift.low(0.99) > 2
    low, high = stats.binom.interval(0.999, 1000, 0.01)
    assert low <= wrong <= high


def test_false_alarms_are_as_rare_as_the_confidence_says() -> None:
    rng = np.random.default_rng(1)
    flagged = sum(scored(rng, 1.0).flagged for _ in range(250))
    assert flagged <= stats.binom.ppf(0.999, 250, 0.01)


@pytest.mark.parametrize("other", [0.0, 2.0])
def test_less_noise_refutes_the_claim(other: float) -> None:
    rng = np.random.default_rng(2)
    found = [scored(rng, 0.25, other=other) for _ in range(20)]
    assert all(one.flagged for one in found)
    assert all(one.bounds[0].low > one.claim.epsilon for one in found)


def test_other_updates_make_the_bound_smaller_and_no_false_alarm() -> None:
    rng = np.random.default_rng(3)
    alone, beside = ([scored(rng, 1.0, other=other) for _ in range(100)] for other in (0.0, 8.0))
    assert not any(one.flagged for one in beside)
    low, high = (np.mean([one.bounds[0].value for one in side]) for side in (beside, alone))
    assert low < high


@pytest.mark.slow
def test_the_smallest_violation_is_seen_in_half_of_the_cases() -> None:
    rng, rounds = np.random.default_rng(4), 6
    claimed = scored(rng, 1.0, rounds=rounds)
    assert claimed.smallest_seen is not None
    mus = np.linspace(1, 4, 400)
    epsilons = [claim_of_clients(mu, rounds, DELTA).epsilon for mu in mus]
    noise = 1 / float(np.interp(claimed.smallest_seen, epsilons, mus))
    seen = sum(bool(scored(rng, noise).refuted_by) for _ in range(200))
    assert 70 <= seen <= 130


@pytest.mark.parametrize(("mu", "rounds"), [(0.3, 1), (1.0, 10), (0.5, 40)])
def test_claim_is_that_of_an_accountant(mu: float, rounds: int) -> None:
    pld = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    pld.compose(dp_accounting.GaussianDpEvent(1 / mu), rounds)
    claim = claim_of_clients(mu, rounds, DELTA)
    assert claim.epsilon == pytest.approx(pld.get_epsilon(DELTA), rel=2e-3)
    assert claim.unit == "client, added or removed"


def test_no_noise_is_the_largest_leak() -> None:
    scores = PlantedScores([1.0], 0.0, 10, 1)
    found = audit_planted(scores, claim_of_clients(1.0, 1, DELTA))
    assert found.flagged
    assert found.bounds[0].low > 100


def test_coins_are_fair_and_somebody_takes_part() -> None:
    drawn = np.array([Planted.by_coins(6, seed).members for seed in range(300)])
    share = 0.5 / (1 - 0.5**6)  # nobody is not a case
    assert stats.binomtest(int(drawn.sum()), drawn.size, share).pvalue > 1e-3
    assert Planted.by_coins(1, 0).members == (True,)


def test_what_cannot_be_audited_is_refused() -> None:
    with pytest.raises(InputError, match="none of the 2 planted clients takes part"):
        Planted((False, False))
    with pytest.raises(InputError, match="4 planted clients in a model of 4 coordinates"):
        PLANTED.directions(1, 4)
    with pytest.raises(InputError, match="no planted client took part in a round"):
        audit_planted(PlantedScores(rounds=1, size=1), claim_of_clients(1.0, 1, DELTA))


def test_scores_are_those_of_plain_least_squares() -> None:
    """The rest is the residual of a regression on the directions of those who took part."""
    rng, members = np.random.default_rng(6), np.array(PLANTED.members)
    directions, moved = PLANTED.directions(3, SIZE), rng.normal(size=SIZE)
    scores = PlantedScores()
    scores.add(moved, directions, members, noise=0.5)
    chosen: Floats = directions[members]
    fit, rest, _, _ = np.linalg.lstsq(chosen.T, moved, rcond=None)
    np.testing.assert_allclose(scores.inside, fit / 0.5)
    assert scores.rest == pytest.approx(float(rest[0]) / 0.25)
    assert scores.noise == pytest.approx(math.sqrt(float(rest[0]) / 0.25 / (SIZE - 3)))
