"""Rules on two runs: the notation, the outcomes, and how often an unchanged figure fails."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from leakgauge.catalog import questions
from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.evidence.between import TwoRuns, check_sides, evaluate_between, no_worse
from leakgauge.evidence.gate import FigureOutcome, Gate
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.evidence.rule import check_rules, parse_rule
from leakgauge.report.differences.audited import Audited
from leakgauge.report.differences.compared import compare_audits
from leakgauge.results.measurements import ACCUMULATED, Estimate, Measurement
from leakgauge.results.scores import ScoredTrials, advantage, score
from leakgauge.results.statistics import clopper_pearson, difference
from support.made_runs import defended, make_records

RULE = "advantage.difference.low > 0.02"
KNOWN = questions()


def one_run(measured: Sequence[Measurement], name: str = "run") -> tuple[RunParts, Audited]:
    part = RunPart("inference", KNOWN["inference"], measurements=measured)
    audited = Audited(name, {"inference": measured}, data={"name": "adult", "fingerprint": "9f"})
    return RunParts("adult", "audit", Path(name), [part]), audited


def two(before: Sequence[Measurement], after: Sequence[Measurement]) -> TwoRuns:
    (one, first), (other, second) = one_run(before, "base"), one_run(after)
    metrics = {"inference": KNOWN["inference"].metrics}
    return TwoRuns(one, other, compare_audits(first, second, metrics))


def gate_of(text: str, before: Sequence[Measurement], after: Sequence[Measurement]) -> Gate:
    runs, rules = two(before, after), [parse_rule(text)]
    check_sides(rules, runs, KNOWN)
    return evaluate_between(rules, runs)


def only(text: str, before: Sequence[Measurement], after: Sequence[Measurement]) -> FigureOutcome:
    (one,) = gate_of(text, before, after).figures
    return one


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("advantage.difference > 0.02", ("", "advantage", "difference", "high")),
        ("property.auroc.difference.low > 0", ("property", "auroc", "difference", "low")),
        ("auroc.after.value > 0.6", ("", "auroc", "after", "value")),
        ("membership.auroc.before < 0.7", ("membership", "auroc", "before", "low")),
    ],
)
def test_a_rule_names_a_side_of_two_runs(text: str, parts: tuple[str, ...]) -> None:
    rule = parse_rule(text)
    assert (rule.owner, rule.metric, rule.side, rule.compared) == parts


def test_what_must_hold_is_the_opposite_of_when_to_fail() -> None:
    for text, trips in (("auroc <= 0.6", ">"), ("auroc < 0.6", ">="), ("accuracy >= 0.8", "<")):
        assert parse_rule(text, required=True).operator == trips
    with pytest.raises(InputError, match=r"^require is 'auroc >= 0.6'.*write '<='"):
        check_rules([parse_rule("auroc >= 0.6", required=True)], [KNOWN["inference"]], KNOWN)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("advantage > 0.1", "of which run? Write advantage.difference"),
        ("advantge.difference > 0", "did you mean 'advantage'?"),
        ("advantage.differnce > 0", "did you mean 'difference'?"),
        ("epsilon.difference > 0", "no question of this run measures 'epsilon'"),
        ("membership.auroc.after > 0.6", "membership is not asked"),
        ("advantage.difference.low > 1", "lies from -1 to 1"),
        ("advantage.difference < 0.1", "name the end (advantage.difference.low)"),
        ("success_most_at_risk.difference > 0", "the reference, 'base', does not have it"),
    ],
)
def test_a_rule_about_nothing_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        gate_of(text, make_records(), make_records())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_rule_on_two_runs_is_refused_for_one() -> None:
    with pytest.raises(InputError, match="--against BASE"):
        check_rules([parse_rule(RULE)], [KNOWN["inference"]], KNOWN)


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("auroc.difference.low > 0.02", "tripped"),
        ("auroc.difference.low > 0.15", "pass"),
        ("auroc.difference.value > 0.15", "tripped"),
        ("auroc.difference > 0.2", "tripped"),
        ("auroc.difference.high > 0.3", "pass"),
        ("auroc.before.high > 0.6", "tripped"),
        ("auroc.before.high > 0.7", "pass"),
        ("auroc.after.low > 0.7", "tripped"),
        ("accuracy.difference < -0.1", "pass"),
        ("accuracy.difference < 0.1", "tripped"),
    ],
)
def test_ends_of_the_difference_decide(rule: str, outcome: str) -> None:
    """The AUROC rises from 0.584 to 0.760, each with half an interval of 0.04."""
    before, after = make_records(0.3, 0.04), make_records(1.0, 0.04)
    found = only(rule, before, after)
    assert found.outcome == outcome
    if ".difference" in rule and rule.startswith("auroc"):
        expected = difference(*(side[-5].estimate for side in (before, after)))
        assert found.value == pytest.approx(expected.value)
        assert (found.before or {})["value"] == pytest.approx(stats.norm.cdf(0.3 / math.sqrt(2)))


def test_the_interval_is_that_of_compare() -> None:
    before, after = make_records(0.3, 0.04), make_records(1.0, 0.04)
    (row,) = [one for one in two(before, after).differences.main if one.after.metric == "auroc"]
    found = only("auroc.difference.low > 0", before, after)
    assert (found.value, found.low, found.high) == (
        row.estimate.value, row.estimate.low, row.estimate.high,
    )  # fmt: skip
    assert found.smallest_detectable == row.smallest


def test_a_figure_of_one_run_alone_never_passes() -> None:
    both = [*make_records(), *make_records(game="attribute")]
    for before, after in ((make_records(), both), (both, make_records())):
        gate = gate_of(RULE, before, after)
        assert {one.outcome for one in gate.figures} == {"pass", "not measured"}
        assert (gate.decision, gate.exit_code) == ("undecided", 2)
    assert gate_of(f"property.{RULE}", both, make_records()).exit_code == 0


def test_a_defense_that_was_removed_is_compared_with_the_training_without_it() -> None:
    plain = {"none": (0.85, 3.0, None)}
    both = defended({**plain, "sign": (0.85, 0.1, 0.2), "prune": (0.85, 2.9, 3.0)})
    gate = gate_of("auroc.difference.low > 0.02", both, defended(plain))
    told = {(one.adversary, (one.before or {})["value"] < 0.6): one.outcome for one in gate.figures}
    assert {defended_: outcome for (_, defended_), outcome in told.items()} == {
        True: "tripped",
        False: "pass",
    }
    assert {one.why.split("(")[1] for one in gate.figures} == {
        "sign → no defense)",
        "prune → no defense)",
    }
    assert gate_of("auroc.difference.low > 0.02", defended(plain), both).decision == "pass"


def test_an_adversary_below_guessing_does_not_pass() -> None:
    for before, after in ((0.0, -0.6), (-0.6, 0.6)):
        found = only(RULE, make_records(before, 0.02), make_records(after, 0.02))
        assert found.outcome == "not valid"


def test_a_test_that_could_not_see_any_leak_does_not_pass() -> None:
    wide = make_records(0.0, 0.35)
    assert only("auroc.difference.low > 0", wide, wide).outcome == "too little data"
    narrow = make_records(0.0, 0.05)
    found = only("auroc.difference.low > 0", narrow, narrow)
    assert found.outcome == "pass"
    assert "a change below 0.101 could be missed" in found.why


def test_an_advantage_that_is_cut_to_nothing_is_compared_by_its_success_rate() -> None:
    """An advantage of 0 (0 to 0): its success rate of 0.40 (0.35 to 0.45) says how wide it is."""
    cut = [
        replace(one, estimate=Estimate(0.4, 0.35, 0.45, 300))
        if one.metric == "success"
        else replace(one, estimate=Estimate(0.0, 0.0, 0.0, 300))
        if one.metric == "advantage"
        else one
        for one in make_records(0.0, 0.05, rounds=1)
    ]
    after = make_records(0.5, 0.05, rounds=1)
    found = only(RULE, cut, after)
    (advantage_,) = [
        one.estimate for one in after if (one.metric, one.round) == ("advantage", ACCUMULATED)
    ]
    expected = difference(Estimate(0.0, 0.0, 0.1, 300), advantage_)
    assert (found.low, found.high) == (expected.low, expected.high)


def test_no_worse_asks_for_the_headline_or_the_named_metrics() -> None:
    run, _ = one_run(make_records())
    assert no_worse(run, [], 0.0) == ["property.auroc.difference.low <= 0"]
    assert no_worse(run, ["accuracy"], 0.01) == ["accuracy.difference.high >= -0.01"]
    with pytest.raises(InputError, match="by is -1"):
        no_worse(run, [], -1)


def guesses(rate: float, n: int, rng: np.random.Generator) -> Estimate:
    """Return an advantage of n guesses of a bit, with the exact interval, cut at 0."""
    right = int(rng.binomial(n, rate))
    ends = clopper_pearson(right, n)
    return Estimate(*(advantage(one, 0.5) for one in (right / n, *ends)), n)


@pytest.mark.calibration
@pytest.mark.parametrize("rate", [0.5, 0.52, 0.6, 0.8])
def test_unchanged_advantages_differ_in_at_most_one_run_of_forty(rate: float) -> None:
    """Also near 0, where intervals are cut: a share of 0.025, and three standard errors."""
    rng, repeats = stream(0, "unchanged", str(rate)), 2000
    shown = sum(
        difference(guesses(rate, 200, rng), guesses(rate, 200, rng)).low > 0 for _ in range(repeats)
    )
    assert shown / repeats < 0.025 + 3 * math.sqrt(0.025 * 0.975 / repeats)


def scored(shift: float, n: int, seed: int, name: str) -> list[Measurement]:
    """Return the figures of n trials whose scores are Gaussians at a distance, as an audit's."""
    rng = stream(seed, name)
    truth = rng.integers(2, size=n)
    said = rng.normal(size=n) + shift * (truth - 0.5)
    odds = np.stack([-said / 2, said / 2], axis=1)
    trials = ScoredTrials(truth, odds - np.logaddexp(odds[:, :1], odds[:, 1:]), np.arange(n))
    found = score(trials, majority=0.5, rng=rng, replicates=200)
    base = next(one for one in make_records() if one.round == ACCUMULATED)
    chance = {"auroc": 0.5, "success": 0.5, "advantage": 0.0, "tpr_at_1_fpr": 0.01}
    return [
        replace(base, metric=metric, estimate=one, chance=chance[metric], curve=None)
        for metric, one in found.items()
    ]


SEEDS = 20
MOST = int(stats.binom.ppf(0.999, SEEDS, 0.05))
"""Failures of an unchanged run: 2.5 % show a difference, 2.5 % lie below guessing."""


@pytest.mark.calibration
def test_an_added_leak_fails_and_an_unchanged_run_passes_at_the_stated_rate() -> None:
    codes = {
        name: [
            gate_of(RULE, scored(0.0, 200, seed, "base"), scored(shift, 200, seed, name)).exit_code
            for seed in range(SEEDS)
        ]
        for name, shift in (("unchanged", 0.0), ("leak", 1.5))
    }
    failed = {name: sum(code == 3 for code in each) for name, each in codes.items()}
    print(f"of {SEEDS} seeds fail: {failed}")
    assert failed["unchanged"] <= MOST
    assert failed["leak"] == SEEDS
