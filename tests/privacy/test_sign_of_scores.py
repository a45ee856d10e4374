"""A leak is a leak with either sign of the score."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.privacy.dp_audit import DpAudit, audit_many_runs, audit_one_run
from leakgauge.privacy.profile import profile_of

CLAIM = profile_of(lambda at: epsilon_gaussian(1.0, 1.0, at).value, 1e-5)


def one_run(mu: float, seed: int, *, canaries: int, sign: int = 1) -> DpAudit:
    generator = np.random.default_rng(seed)
    included = generator.random(canaries) < 0.5
    scores = included * mu + generator.standard_normal(canaries)
    return audit_one_run(sign * scores, included, CLAIM)


def many_runs(mu: float, seed: int, *, runs: int, sign: int = 1) -> DpAudit:
    generator = np.random.default_rng(seed)
    out, inside = generator.standard_normal((2, runs))
    return audit_many_runs(sign * out, sign * (inside + mu), CLAIM)


LEAKS = {
    "one run": (one_run, {"canaries": 300}),
    "many runs": (many_runs, {"runs": 150}),
}


@pytest.mark.parametrize("kind", LEAKS)
@settings(max_examples=10, deadline=None)
@given(mu=some.floats(4.0, 9.0), seed=some.integers(0, 10**6))
def test_scores_of_either_sign_show_the_same_bounds(kind: str, mu: float, seed: int) -> None:
    audit, asked = LEAKS[kind]
    as_given, turned = (audit(mu, seed, sign=sign, **asked) for sign in (1, -1))
    assert turned.bounds == as_given.bounds
    assert turned.flagged is as_given.flagged is True
    assert (as_given.turned, turned.turned) == (False, True)
    assert turned.verdict.startswith(f"REFUTED by {kind if kind == 'one run' else '300 runs'}, sco")
    assert "smaller where the record is in" in turned.verdict
    assert "turned round" not in as_given.verdict
    assert turned.to_json()["turned"] is True


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_within_the_claim_is_said_to_be_turned_round(kind: str) -> None:
    audit, asked = LEAKS[kind]
    found = audit(1.0, 0, sign=-1, **asked)
    assert not found.flagged
    assert found.verdict.startswith("Not refuted")
    assert "smaller where the record is in" in found.verdict


@pytest.mark.calibration
@pytest.mark.parametrize("kind", [pytest.param("one run", marks=pytest.mark.slow), "many runs"])
def test_scores_without_a_leak_show_nothing_in_either_direction(kind: str) -> None:
    audit, asked = LEAKS[kind]
    found = [audit(0.0, seed, **asked) for seed in range(60)]
    assert not any(one.flagged for one in found)
    assert sum(one.bounds[0].low > 0 for one in found) <= 3  # 1 % for each sign


def test_the_direction_of_many_runs_is_chosen_on_other_runs() -> None:
    """Runs that choose say one sign, runs that are evaluated the other: nothing is shown."""
    low, high = np.arange(50.0), np.arange(100.0, 150.0)
    out, inside = np.concatenate([low, high]), np.concatenate([high, low])
    found = audit_many_runs(out, inside, CLAIM)
    assert not found.flagged
    assert [one.low for one in found.bounds] == [0.0, 0.0]


def test_constant_scores_are_not_turned_round() -> None:
    included = np.arange(100) % 2 == 0
    for found in (
        audit_one_run(np.zeros(100), included, CLAIM),
        audit_many_runs(np.zeros(100), np.zeros(100), CLAIM),
    ):
        assert not found.turned
        assert not found.flagged
        assert all(one.low == 0 for one in found.bounds)
