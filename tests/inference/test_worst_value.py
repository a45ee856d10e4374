"""A value that leaks is named where the mean over the values hides it; chance is not."""

from dataclasses import replace

import pytest
from scipy.stats import norm

from leakgauge.core.rng import stream
from leakgauge.inference.report.titles import adversary_tests
from leakgauge.inference.report.verdict import ONE_VALUE, verdict
from leakgauge.inference.report.worst_value import leaking_value, worst_value
from leakgauge.results.measurements import Estimate, Measurement
from support.made_runs import make_records, make_run


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


def test_it_is_said_next_to_a_mean_that_leaks() -> None:
    (test,) = adversary_tests(measured_with(0.7, 0.1, of_ten(Estimate(1.0, 0.7, 1.0, 60))))
    found = verdict(make_run(), test)
    assert found is not None
    assert found.headline != ONE_VALUE
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
