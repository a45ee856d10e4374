"""Several seeds as one answer: means, intervals that cover trainings and trials, the headline."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leakgauge.data import Source
from leakgauge.data.source import open_data
from leakgauge.inference.question import QUESTION
from leakgauge.inference.report.sentences import one_training
from leakgauge.inference.report.titles import adversary_tests
from leakgauge.inference.report.verdict import verdict, verdicts
from leakgauge.inference.run.over_seeds import BY_SEED, combined
from leakgauge.inference.spec import InferenceSpec
from leakgauge.report.levels import LEAKS
from leakgauge.results.measurements import (
    ACCUMULATED,
    CHOSEN,
    HEADLINE,
    Estimate,
    Measurement,
    Run,
)
from leakgauge.results.scores import AUROC
from leakgauge.runs.question import Silent
from leakgauge.runs.work import WorkFolder

BASE = Measurement(
    question="inference", game="property", dataset="d", label="y", secret="s", defense="none",
    knowledge="static", adversary="panel", metric=AUROC, round=ACCUMULATED, seed=0,
    estimate=Estimate(0.5, 0.4, 0.6, 100), chance=0.5,
)  # fmt: skip


def figure(seed: int, value: float, reach: float = 0.05, **more: object) -> Measurement:
    return replace(
        BASE, seed=seed, estimate=Estimate(value, value - reach, value + reach, 100), **more
    )


def identity(one: Measurement) -> tuple[object, ...]:
    return one.game, one.defense, one.knowledge, one.adversary, one.metric, one.round


@pytest.fixture(scope="module")
def rand() -> Source:
    source = open_data("randhie")
    return replace(source, frame=source.frame.iloc[:1500].reset_index(drop=True))


def answered(rand: Source, folder: Path, **settings: object) -> list[Measurement]:
    spec = InferenceSpec(
        label="any_visit", secret="female", rounds=1, trials=100, shadow=300,
        adversary=("energies:batches=50", "discriminant:batches=50"), **settings,
    )  # fmt: skip
    made = QUESTION.run(QUESTION.prepare(spec, rand), WorkFolder(folder), Silent(), workers=1)
    return list(made.measurements)


def test_figures_are_means_over_runs_of_each_seed(rand: Source, tmp_path: Path) -> None:
    together = {identity(one): one for one in answered(rand, tmp_path / "3", seed=4, seeds=2)}
    alone = [
        {identity(one): one for one in answered(rand, tmp_path / f"of-{seed}", seed=seed)}
        for seed in (4, 5)
    ]
    assert len({one.estimate.value for each in alone for one in each.values()}) > 20
    for key, one in together.items():
        if one.round == HEADLINE:
            continue
        own = [each[key].estimate for each in alone]
        assert one.estimate.value == pytest.approx(np.mean([each.value for each in own]))
        assert one.estimate.n == sum(each.n for each in own)
    headline = [one for one in together.values() if (one.round, one.metric) == (HEADLINE, AUROC)]
    assert len(headline) == 1
    assert headline[0].details[BY_SEED].startswith("4: ")
    assert headline[0].estimate == together[identity(replace(headline[0], round=CHOSEN))].estimate


def test_the_headline_is_the_adversary_of_most_seeds() -> None:
    winners = ("panel", "energies", "energies")
    values = {"panel": (0.9, 0.6, 0.6), "energies": (0.7, 0.7, 0.7)}
    single = [
        figure(seed, values[name][seed], adversary=name, round=when)
        for seed, winner in enumerate(winners)
        for name in values
        for when in ([CHOSEN, HEADLINE] if name == winner else [CHOSEN])
    ]
    found = {identity(one)[3:]: one for one in combined(single)}
    assert [key for key in found if key[2] == HEADLINE] == [("energies", AUROC, HEADLINE)]
    assert found["energies", AUROC, HEADLINE].estimate.value == pytest.approx(0.7)
    assert found["panel", AUROC, CHOSEN].details[BY_SEED] == "0: 0.900, 1: 0.600, 2: 0.600"


def test_each_value_of_the_headline_has_a_mean_over_all_seeds() -> None:
    metric = f"{AUROC}: white"
    single = [
        figure(seed, 0.6 + seed / 10, adversary=name, round=HEADLINE, metric=each)
        for seed, name in enumerate(("panel", "forest", "forest"))
        for each in (AUROC, metric)
    ] + [figure(seed, 0.6, adversary="forest", round=CHOSEN) for seed in range(3)]
    (one,) = (each for each in combined(single) if each.metric == metric)
    assert (one.adversary, one.estimate.value) == ("forest", pytest.approx(0.7))


@pytest.mark.parametrize(
    ("seeds", "values", "reach", "headline"),
    [
        (2, (0.921, 0.999), 0.01, "Two seeds cannot decide"),
        (3, (0.80, 0.99, 0.55), 0.04, "3 seeds cannot decide"),
        (2, (0.52, 0.60), 0.2, "Inconclusive"),  # the trials do not decide either
        (2, (0.80, 0.81), 0.01, "Clear leakage"),
    ],
)
def test_few_seeds_say_that_they_cannot_decide(seeds, values, reach, headline) -> None:
    each = [figure(seed, values[seed], reach, round=HEADLINE) for seed in range(seeds)]
    each += [figure(seed, values[seed], reach, round=CHOSEN) for seed in range(seeds)]
    (test,) = adversary_tests(combined(each))
    run = Run("audit", {"seeds": seeds, "batch_size": 16, "rounds": 1}, {})
    found = verdict(run, test)
    assert (found.headline, found.level in LEAKS) == (headline, "leakage" in headline)
    if "cannot" in headline:
        # of independent means: half-widths in quadrature, by hand
        mean, half = sum(values) / seeds, reach / seeds**0.5
        own = f"interval {mean - half:.3f} to {min(1, mean + half):.3f}, from the trials"
        assert own in found.text
        assert f"allow {found.auroc.low:.3f} to 1.000. Use --seeds" in found.text


def test_one_seed_is_left_as_it_is() -> None:
    single = [figure(3, 0.6), figure(3, 0.7, round=HEADLINE)]
    assert combined(single) == single


@pytest.mark.parametrize(
    ("seeds", "values", "says"),
    [
        (1, {"property": 0.74, "attribute": 0.999}, "AUROC of property inference may differ by"),
        (1, {"property": 0.74, "attribute": 0.8}, "AUROC of property and attribute inference may"),
        (1, {"property": 0.999}, "One training: others may differ; --seeds 5 measures it."),
        (2, {"property": 0.74}, ""),
        (1, {}, ""),
    ],
)
def test_one_training_says_that_others_differ(seeds, values, says) -> None:
    run = Run("audit", {"seeds": seeds, "batch_size": 16, "rounds": 1}, {})
    each = [
        figure(0, value, 0.0005, game=game, round=when)
        for game, value in values.items()
        for when in (CHOSEN, HEADLINE)
    ]
    found = one_training(run, verdicts(run, each))
    assert says in found if says else found == ""
