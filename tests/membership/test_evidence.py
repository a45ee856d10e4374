"""Odds and rates are stated only as far as records can show them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from leakgauge.membership.metrics import LEAKAGE, TPR_AT_01_FPR
from leakgauge.membership.report.verdict import verdict
from leakgauge.membership.run.at_risk import most_at_risk, supported
from leakgauge.membership.run.scoring import AttackScores, Targets, score_attack
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import ACCUMULATED, CellContext, Measurement
from leakgauge.results.scores import TPR_AT_1_FPR


def odds_of(scale: float, shift: float, *, n: int, seed: int) -> np.ndarray:
    """The odds of targets by an attack whose log odds have any scale; ``shift`` is the leak."""
    rng = np.random.default_rng(seed)
    member = np.arange(2 * n) % 2 == 0
    validation, targets = (scale * (rng.normal(size=2 * n) + shift * member) for _ in range(2))
    named = most_at_risk(
        targets, member, np.arange(2 * n), count=n, calibrate=supported(validation, member)
    )
    return np.array([one.odds for one in named])


@settings(max_examples=40, deadline=None)
@given(
    scale=some.floats(0.01, 1000.0),
    shift=some.floats(-5.0, 20.0),
    n=some.integers(3, 300),
    seed=some.integers(0, 10**6),
)
def test_odds_never_exceed_what_validation_records_show(
    scale: float, shift: float, n: int, seed: int
) -> None:
    odds = odds_of(scale, shift, n=n, seed=seed)
    assert odds.max() <= n * (1 + 1e-9)
    assert (np.diff(odds) <= 0).all()


def test_an_attack_that_guesses_has_odds_of_one() -> None:
    """By 95 % of both sides, about 1 of 40 attacks that guess seems to recognise members."""
    found = np.array([odds_of(30.0, 0.0, n=60, seed=seed).max() for seed in range(100)])
    assert (found == 1).sum() >= 92
    assert found.max() < 4


def test_a_reversed_attack_has_odds_of_one() -> None:
    assert odds_of(30.0, -3.0, n=60, seed=0).max() == 1


def test_an_attack_that_recognises_members_has_high_odds() -> None:
    assert 20 < odds_of(1.0, 4.0, n=100, seed=0).max() < 100.001


def test_the_best_of_many_attacks_needs_more_evidence() -> None:
    member = np.arange(40) % 2 == 0
    scores = np.random.default_rng(1).normal(size=40) + 0.8 * member
    assert supported(scores, member).platt.slope > 0
    assert supported(scores, member, among=50).platt.slope == 0


def attacked(others: int) -> dict[str, Measurement]:
    rng = np.random.default_rng(0)
    n = 2 * others
    member, rows = np.arange(n) % 2 == 0, np.arange(n)
    scores = rng.normal(size=n) + 2 * member
    targets = Targets(member, np.full(n, -1), rows % 500, (), member)
    context = CellContext(question="membership", dataset="made", adversary="loss", seed=0)
    found = score_attack(context, AttackScores(scores, scores, 0.0, "loss"), targets)
    return {one.metric: one for one in found}


@pytest.mark.parametrize(
    ("others", "left_out", "says"),
    [
        (80, {TPR_AT_1_FPR, TPR_AT_01_FPR}, "in 1 of 100 others needs 100 non-members"),
        (100, {TPR_AT_01_FPR}, "the share at 1 of 1,000 needs 1,000 non-members"),
        (1000, set(), "in 1 of 1,000 "),
    ],
)
def test_a_rate_that_no_record_can_show_is_not_stated(
    others: int, left_out: set[str], says: str
) -> None:
    found = attacked(others)
    assert set(LEAKAGE) - set(found) == left_out
    figures = {
        (metric, ACCUMULATED): replace(one, round=ACCUMULATED) for metric, one in found.items()
    }
    test = Test("membership", "none", "static", "loss", figures)
    assert says in verdict(test).text
