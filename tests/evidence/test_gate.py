"""Decisions on made-up figures: which count, what trips, and what is too little data."""

from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from leakgauge.catalog import questions
from leakgauge.evidence.evaluation import evaluate_rules
from leakgauge.evidence.gate import FigureOutcome, Gate, write_gate
from leakgauge.evidence.parts import RunPart, RunParts
from leakgauge.evidence.rule import parse_rule
from leakgauge.report.section import Row
from leakgauge.results.measurements import ACCUMULATED, HEADLINE, Estimate, Measurement
from support.made_runs import defended, make_records

Z = float(stats.norm.ppf(0.975))
POWERED = Z + float(stats.norm.ppf(0.8))


def figure(value: float, low: float, high: float, **changed: object) -> Measurement:
    one = next(one for one in make_records() if (one.metric, one.round) == ("auroc", ACCUMULATED))
    n = changed.pop("n", 200)
    return replace(one, estimate=Estimate(value, low, high, n), **changed)  # type: ignore[arg-type]


def run_of(*measurements: Measurement, asks: str = "inference", **changed: object) -> RunParts:
    part = RunPart(asks, questions()[asks], measurements=measurements, **changed)  # type: ignore[arg-type]
    return RunParts("made", "audit", Path(), [part])


def gate_of(text: str, *measurements: Measurement, asks: str = "inference", **changed) -> Gate:
    return evaluate_rules([parse_rule(text)], run_of(*measurements, asks=asks, **changed))


def only(text: str, *measurements: Measurement, asks: str = "inference") -> FigureOutcome:
    (one,) = gate_of(text, *measurements, asks=asks).figures
    return one


@pytest.mark.parametrize(
    ("rule", "outcome"),
    [
        ("auroc > 0.58", "tripped"),
        ("auroc.low > 0.58", "pass"),
        ("auroc.value > 0.55", "too little data"),
        ("auroc > 0.7", "pass"),
        ("auroc >= 0.6", "tripped"),
        ("auroc > 0.6", "pass"),
    ],
)
def test_ends_of_the_interval_decide(rule: str, outcome: str) -> None:
    found = only(rule, figure(0.55, 0.5, 0.6))
    assert found.smallest_detectable == pytest.approx(0.5 + POWERED * 0.05 / Z)  # 0.5715
    assert found.outcome == outcome


def test_too_little_data_is_no_pass() -> None:
    """The upper end is below the threshold, and the smallest leak that is visible above it."""
    found = only("auroc > 0.62", figure(0.5, 0.39, 0.61))
    assert found.outcome == "too little data"
    assert found.smallest_detectable == pytest.approx(0.5 + POWERED * 0.11 / Z)
    gate = gate_of("auroc > 0.62", figure(0.5, 0.39, 0.61))
    assert (gate.decision, gate.exit_code) == ("fail", 3)
    assert only("auroc > 0.66", figure(0.5, 0.39, 0.61)).outcome == "pass"


def test_the_cut_of_an_advantage_at_0_hides_no_lack_of_data() -> None:
    """The interval of an advantage of 0 has no width, but that of the success rate has."""
    success = figure(0.44, 0.38, 0.50, metric="success", chance=0.5)
    advantage = figure(0.0, 0.0, 0.0, metric="advantage", chance=0.0)
    found = only("advantage > 0.05", success, advantage)
    assert found.smallest_detectable == pytest.approx(2 * POWERED * 0.06 / Z)
    assert found.outcome == "too little data"
    assert only("advantage > 0.05", advantage).outcome == "no interval"
    assert only("advantage > 0.2", success, advantage).outcome == "pass"


def test_a_cut_at_a_bound_is_taken_as_wide_as_the_other_side() -> None:
    found = only("columns > 0.9", figure(0.0, 0.0, 0.3, metric="columns", chance=0.1),
                 asks="reconstruction")  # fmt: skip
    assert found.smallest_detectable == pytest.approx(0.1 + POWERED * 0.3 / Z)


@pytest.mark.parametrize(
    ("one", "outcome"),
    [
        (figure(0.5, 0.5, 0.5), "no interval"),
        (figure(0.5, 0.5, 0.5, n=1), "no interval"),
        (figure(0.3, 0.25, 0.35), "not valid"),
        (figure(0.9, 0.9, 0.9), "tripped"),
    ],
)
def test_what_is_no_test_never_passes(one: Measurement, outcome: str) -> None:
    assert only("auroc > 0.7", one).outcome == outcome
    assert gate_of("auroc > 0.7", one).exit_code == 3


def test_a_lower_figure_can_be_the_worse_one() -> None:
    lpips = figure(0.5, 0.45, 0.55, metric="lpips", chance=0.6)
    assert only("lpips < 0.4", lpips, asks="reconstruction").outcome == "pass"
    assert only("lpips < 0.46", lpips, asks="reconstruction").outcome == "tripped"
    wide = figure(0.6, 0.41, 0.79, metric="lpips", chance=0.6)
    found = only("lpips < 0.4", wide, asks="reconstruction")
    assert (found.outcome, found.smallest_detectable) == (
        "too little data",
        pytest.approx(0.6 - POWERED * 0.19 / Z),
    )


def test_a_model_is_judged_by_its_interval_alone() -> None:
    accuracy = figure(0.85, 0.84, 0.86, metric="accuracy", round=3, chance=0.75)
    assert only("accuracy < 0.8", accuracy).outcome == "pass"
    assert only("accuracy < 0.845", accuracy).outcome == "tripped"


def test_the_adversary_that_knows_the_defense_decides_for_each_defense() -> None:
    found = gate_of("auroc > 0.99", *reversed(defended())).figures
    played = {(one.defense, one.knowledge) for one in found}
    names = ("prune:rate=0.99", "sign", "dpsgd:clip=2,noise=0.1")
    assert played == {(name, "adaptive") for name in names}
    undefended = gate_of("auroc > 0.99", *(one for one in defended() if one.defense == "none"))
    assert {one.defense for one in undefended.figures} == {"none"}


def test_who_does_not_know_the_defense_counts_where_it_finds_more() -> None:
    """Before, rows that a static attack rebuilt whole passed, as the adaptive one rebuilt half."""
    knowing = figure(
        0.5, 0.4, 0.6, metric="columns", chance=0.1, knowledge="adaptive", defense="sign"
    )
    for value, outcomes in ((1.0, ["pass", "tripped"]), (0.3, ["pass"])):
        one = replace(
            figure(value, value - 0.05, value, metric="columns", chance=0.1),
            knowledge="static", defense="sign", adversary="exact-batch",
        )  # fmt: skip
        found = gate_of("columns > 0.9", one, knowing, asks="reconstruction").figures
        assert [each.outcome for each in found] == outcomes


def test_the_headline_of_several_adversaries_counts() -> None:
    best = make_records(2.0, adversary="forest")
    chosen = [replace(one, round=HEADLINE) for one in best if one.round == ACCUMULATED]
    other = make_records(3.0, adversary="logistic")
    (found,) = gate_of("auroc > 0.99", *best, *chosen, *other).figures
    assert (found.adversary, found.round) == ("forest", HEADLINE)


def test_a_figure_of_every_checkpoint_counts() -> None:
    found = gate_of(
        "linear_gaussian > 0.5",
        *(figure(x, x - 0.1, x + 0.1, metric="linear_gaussian", round=r, chance=0.0)
          for r, x in ((0, 0.9), (5, 0.2))),
        asks="timeline",
    ).figures  # fmt: skip
    assert [(one.round, one.outcome) for one in found] == [(0, "tripped"), (5, "pass")]


def test_what_was_not_measured_is_undecided_and_a_trip_wins() -> None:
    part = "property: it has too few records"
    calm = figure(0.5, 0.48, 0.52)
    assert gate_of("auroc > 0.7", calm, missing=(part,)).exit_code == 2
    assert gate_of("auroc > 0.5", calm, missing=(part,)).exit_code == 3
    assert gate_of("attribute.auroc > 0.7", calm, missing=(part,)).exit_code == 2
    assert gate_of("auroc > 0.7", missing=("refused",)).decision == "undecided"
    assert gate_of("information_nats > 0.7", calm).decision == "undecided"


def test_a_refused_part_of_another_word_does_not_matter() -> None:
    calm = figure(0.5, 0.48, 0.52)
    assert gate_of("property.auroc > 0.7", calm, missing=("attribute: no",)).decision == "pass"


def test_a_broken_promise_fails_without_a_rule(tmp_path: Path) -> None:
    rows = (Row("guarantee", "The promise does not hold", "strong", "", broken=True),)
    gate = evaluate_rules([], run_of(asks="guarantee", rows=rows))
    assert (gate.decision, gate.exit_code) == ("fail", 3)
    write_gate(tmp_path, gate)
    assert "does not hold" in (tmp_path / "gate.json").read_text("utf-8")
    write_gate(tmp_path, Gate())
    assert not (tmp_path / "gate.json").exists()


def test_a_search_that_fell_short_passes_no_rule() -> None:
    """A better search finds more, so a low figure proves nothing; a high one trips the rule."""
    short = {"search": "fell short"}
    for value, details, outcome in (
        (12.0, {}, "pass"),
        (12.0, short, "too little data"),
        (24.0, short, "tripped"),
    ):
        rebuilt = figure(
            value, value - 1, value + 1, metric="psnr", chance=11.5, details=details, n=4
        )
        found = only("psnr > 20", rebuilt, asks="reconstruction")
        assert found.outcome == outcome
        assert ("search longer (--iterations" in found.why) == (outcome == "too little data")
