"""Claims as curves, many runs, and the verdict of an audit of both."""

import json
import math
import random

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.privacy.accounting import epsilon_gaussian
from leakgauge.privacy.dp_audit import DpAudit, audit_many_runs, audit_one_run, audit_runs
from leakgauge.privacy.estimate import Errors
from leakgauge.privacy.profile import (
    Profile,
    gaussian_least_false_positives,
    profile_of,
)


def gaussian(mu: float, delta: float = 1e-5) -> Profile:
    return profile_of(lambda at: epsilon_gaussian(mu, 1.0, at).value, delta)


def test_a_claim_allows_the_errors_by_hand() -> None:
    claim = Profile(0.1, ((math.log(2), 0.1),))
    powers = np.array([0.05, 0.5, 0.9])
    # (power - 0.1) / 2, or 1 - 0.1 - 2 (1 - power), whichever is larger and above 0
    assert claim.least_false_positives(powers) == pytest.approx([0.0, 0.2, 0.7])


def test_the_curve_of_a_gaussian_claim_is_close_to_the_gaussian_curve() -> None:
    powers = np.linspace(0.01, 0.99, 50)
    claimed = gaussian(1.0).least_false_positives(powers)
    exact = gaussian_least_false_positives(1.0)(powers)
    assert (claimed <= exact + 1e-9).all()  # a finite number of points claims less
    assert (exact - claimed).max() < 0.03


def test_a_claim_is_refuted_at_any_of_its_deltas() -> None:
    """Epsilon 1.2 at 1e-5 alone allows errors that Gaussian noise of that epsilon does not."""
    errors = Errors(350, 350, 1000, 1000)  # mu 0.77
    alone = Profile(1e-5, ((1.2, 1e-5),))
    assert not alone.refuted_by(errors, confidence=0.99)
    assert gaussian(0.32).refuted_by(errors, confidence=0.99)
    assert not gaussian(0.8).refuted_by(errors, confidence=0.99)


def test_an_accountant_that_fails_at_large_deltas_claims_nothing_there() -> None:
    def epsilon_at(delta: float) -> float:
        if delta > 0.15:
            raise ValueError("domain")
        return math.inf if delta == 0.1 else -0.5 if delta == 0.05 else 1.0

    claim = profile_of(epsilon_at, 1e-5)
    expected = {1e-5: 1.0, 1e-4: 1.0, 1e-3: 1.0, 1e-2: 1.0, 0.05: 0.0}
    assert {delta: epsilon for epsilon, delta in claim.points} == expected


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: profile_of(lambda _: math.inf, 1e-5), "epsilon at delta 1e-05 is inf"),
        (lambda: profile_of(lambda _: 1.0, 0.0), "delta is 0"),
        (lambda: Profile(1e-5, ((1.0, 0.1),)), "no epsilon at delta 1e-05"),
        (lambda: Profile(1e-5, ((-1.0, 1e-5),)), "epsilon is -1"),
        (lambda: audit_runs(lambda *_: 0.0, gaussian(1.0), runs=7), "runs is 7"),
        (lambda: audit_runs(lambda *_: math.nan, gaussian(1.0), runs=8), "not finite"),
    ],
)
def test_bad_input_is_refused(bad: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        bad()  # type: ignore[operator]


def shift(mu: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.standard_normal(n), mu + generator.standard_normal(n)


@pytest.mark.calibration
def test_many_runs_refute_a_false_claim_and_no_true_one() -> None:
    flags = {
        mu: [audit_many_runs(*shift(mu, 400, seed), gaussian(0.32)).flagged for seed in range(40)]
        for mu in (0.32, 1.2)
    }
    assert sum(flags[0.32]) <= 2  # 1 % of 40 expected at most
    assert sum(flags[1.2]) >= 36


def test_runs_take_turns_and_get_seeds_of_their_own() -> None:
    seen: list[tuple[bool, int]] = []

    def run(member: bool, seed: int) -> float:
        seen.append((member, seed))
        return random.Random(seed).gauss(5.0 * member, 1.0)

    audit = audit_runs(run, gaussian(0.32), runs=200)
    assert [member for member, _ in seen[:4]] == [False, True, False, True]
    assert len({seed for _, seed in seen}) == 200
    assert audit.flagged
    assert audit.refuted_by == ("200 runs",)
    assert all(0 < bound.low <= bound.most for bound in audit.bounds)


def one_run(mu: float, seed: int = 0, m: int = 1000) -> DpAudit:
    generator = np.random.default_rng(seed)
    included = generator.random(m) < 0.5
    return audit_one_run(included * mu + generator.standard_normal(m), included, gaussian(0.32))


def test_the_table_json_and_verdict_of_an_audit() -> None:
    silent, loud = one_run(0.32), one_run(2.0)
    assert not silent.flagged
    assert "This proves no guarantee" in silent.verdict
    assert silent.smallest_seen is not None
    assert f"below about {silent.smallest_seen:.3g}; with sampling, also larger" in silent.verdict
    assert "Without sampling, one run would have missed" in silent.verdict
    assert silent.conformance is None
    assert not silent.deviates
    assert loud.flagged
    assert loud.verdict.startswith("REFUTED by one run (p = ")
    lines = str(loud).splitlines()
    assert lines[2].split() == ["claimed", "by", "the", "accountant", f"{loud.claim.epsilon:.3g}"]
    assert len(lines) == 7
    plain = json.loads(json.dumps(loud.to_json(), allow_nan=False))
    assert plain["flagged"] is True
    assert plain["claim"]["epsilon"] == loud.claim.epsilon
    assert plain["guesses"]["canaries"] == 1000
    both = silent.beside(audit_many_runs(*shift(5.0, 100, 0), silent.claim))
    assert both.flagged
    assert len(both.bounds) == 4
    assert both.guesses == silent.guesses
    assert both.errors is not None
    with pytest.raises(InputError, match="different claims"):
        silent.beside(audit_many_runs(*shift(5.0, 100, 0), gaussian(1.0)))


def test_too_few_canaries_say_so() -> None:
    generator = np.random.default_rng(0)
    included = generator.random(12) < 0.5
    audit = audit_one_run(included * 9.0, included, gaussian(2.0))
    assert not audit.flagged
    assert "plant more" in audit.verdict
    assert audit.to_json()["smallest_seen"] is None
