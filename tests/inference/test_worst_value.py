"""A value that leaks is named where the mean over the values hides it; chance is not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from leakgauge.core.rng import stream
from leakgauge.inference import Energies
from leakgauge.inference.report.rows import rows_of_tests
from leakgauge.inference.report.titles import adversary_tests
from leakgauge.inference.report.verdict import ONE_VALUE, verdict
from leakgauge.inference.report.worst_value import leaking_value, worst_value
from leakgauge.inference.run import audit
from leakgauge.inference.run.over_seeds import combined
from leakgauge.results.measurements import HEADLINE, Estimate, Measurement
from leakgauge.results.scores import AUROC, WORST_VALUE
from leakgauge.results.worst import highest
from support.made_runs import make_records, make_run
from support.synthetic import records, small_stage


def measured_with(mean: float, half: float, of_values: dict[str, Estimate]) -> list[Measurement]:
    made = make_records(0.0, 0.02, 1)
    like = next(one for one in made if one.metric == "auroc")
    whole = replace(like, estimate=Estimate(mean, mean - half, mean + half, 300))
    each = [replace(like, metric=f"auroc: {name}", estimate=one) for name, one in of_values.items()]
    return [*(one for one in made if one.metric != "auroc"), whole, *each]


def of_ten(worst: Estimate) -> dict[str, Estimate]:
    return {"hiv": worst, **{f"d{n}": Estimate(0.55, 0.4, 0.7, 50) for n in range(9)}}


def test_a_value_that_leaks_is_the_verdict_where_the_mean_is_inconclusive() -> None:
    (test,) = adversary_tests(measured_with(0.6, 0.11, of_ten(Estimate(1.0, 0.7, 1.0, 60))))
    found = verdict(make_run(), test)
    assert found is not None
    assert (found.level, found.headline) == ("strong", ONE_VALUE)
    assert "The value `hiv` of `" in found.text
    assert "as the highest of 10" in found.text
    assert "On average over the 10 values, " in found.text
    assert (found.metric, found.figure.value) == (WORST_VALUE, 1.0)
    assert (found.auroc.value, found.strength) == (0.6, 1.0)
    (row,) = rows_of_tests([found])
    assert (row.metric, row.estimate) == ("AUROC of the value that leaks most", found.figure)


def test_it_is_said_next_to_a_mean_that_leaks() -> None:
    (test,) = adversary_tests(measured_with(0.7, 0.1, of_ten(Estimate(1.0, 0.7, 1.0, 60))))
    found = verdict(make_run(), test)
    assert found is not None
    assert found.headline != ONE_VALUE
    assert (found.metric, found.figure) == (AUROC, found.auroc)
    assert "The value `hiv` of `" in found.text


def test_the_end_is_that_of_bonferroni() -> None:
    value = Estimate(0.8, 0.8 - 0.1 * norm.ppf(0.975), 1.0, 60)
    (test,) = adversary_tests(measured_with(0.6, 0.11, of_ten(value)))
    worst = worst_value(test)
    assert worst is not None
    assert worst.among_all.low == pytest.approx(0.8 - 0.1 * norm.ppf(1 - 0.025 / 10))


@pytest.mark.parametrize("count", [3, 10, 40])
def test_values_that_do_not_leak_are_named_in_at_most_1_of_20_tests(count: int) -> None:
    rng = stream(0, "worst value")
    named, runs = 0, 1000
    (like,) = adversary_tests(measured_with(0.6, 0.11, of_ten(Estimate(1.0, 0.7, 1.0, 60))))
    measured = next(iter(like.values.values()))
    for drawn in 0.5 + 0.05 * rng.normal(size=(runs, count)):
        values = {
            str(n): replace(measured, estimate=Estimate(one, one - 0.098, one + 0.098, 50))
            for n, one in enumerate(drawn.tolist())
        }
        named += leaking_value(replace(like, values=values)) is not None
    assert named <= 50


@pytest.mark.parametrize("truth", [(0.5, 0.5, 0.5), (0.7, 0.69, 0.4), (0.9, 0.5, 0.5)])
def test_the_interval_of_the_highest_holds_the_highest_truth(truth: tuple[float, ...]) -> None:
    rng, error, inside = stream(0, "highest"), 0.04, 0
    half = error * norm.ppf(0.975)
    for drawn in np.array(truth) + error * rng.normal(size=(2000, len(truth))):
        found = highest([Estimate(one, one - half, one + half, 50) for one in drawn.tolist()])
        inside += found.low <= max(truth) <= found.high
    assert inside >= 0.95 * 2000


@pytest.mark.parametrize("values", [2, 5])
def test_an_audit_measures_the_value_that_leaks_most(values: int) -> None:
    """The last value moves a feature; the others tell nothing of themselves."""
    data = records(0.0, n=2000, values=values)
    data = replace(data, x=data.x + 4.0 * (data.secrets["s"] == values - 1)[:, None])
    attack = Energies(batches=200)
    found = [
        list(audit(small_stage(data, attack, batch_size=4, rounds=1, trials=600, seed=seed)))
        for seed in (0, 1)
    ]
    head = {one.metric: one for one in found[0] if one.round == HEADLINE}
    worst = head[WORST_VALUE]
    if values == 2:
        assert worst.estimate == head[AUROC].estimate
    else:
        assert worst.details["value"] == str(values - 1)
        assert worst.estimate.value == head[f"{AUROC}: {values - 1}"].estimate.value > 0.95
        assert head[AUROC].estimate.high < worst.estimate.low
    together = [one for one in combined([*found[0], *found[1]]) if one.metric == WORST_VALUE]
    assert [one.round for one in together] == [HEADLINE]
    mean = np.mean(
        [one.estimate.value for each in found for one in each if one.metric == WORST_VALUE]
    )
    assert together[0].estimate.value == pytest.approx(mean)
