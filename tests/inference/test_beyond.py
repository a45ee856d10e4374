"""What gradients tell beyond the labels and the feature means of a batch."""

from dataclasses import replace

import pytest

from leakgauge.inference import Energies
from leakgauge.inference.metrics import BASELINES, BEYOND
from leakgauge.inference.report.rows import rows_of_tests
from leakgauge.inference.report.titles import adversary_tests, beyond_of, metric_titles
from leakgauge.inference.report.verdict import verdict, verdicts
from leakgauge.inference.run import audit
from leakgauge.inference.run.over_seeds import combined
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import ACCUMULATED, CellContext, Estimate, Run
from leakgauge.results.scores import AUROC
from support.synthetic import records, small_stage

RUN = Run("audit", {"batch_size": 8, "rounds": 1}, {}, ())
CELL = CellContext(
    question="inference", game="property", dataset="d", label="y", secret="s", defense="none",
    seed=0, adversary="panel", knowledge="static", round=ACCUMULATED,
)  # fmt: skip


def measured(auroc: Estimate, **beyond: Estimate) -> Test:
    names = dict(zip(("labels", "features"), BEYOND.values(), strict=True))
    found = [CELL.measurement(AUROC, auroc, chance=0.5)]
    found += [CELL.measurement(names[name], one, chance=0.0) for name, one in beyond.items()]
    (test,) = adversary_tests(found)
    return test


def text_of(test: Test) -> str:
    found = verdict(RUN, test)
    assert found is not None
    return found.text


AUROC_OF = Estimate(0.80, 0.75, 0.85, 1000)


@pytest.mark.parametrize(
    ("beyond", "words"),
    [
        (Estimate(0.01, -0.02, 0.04, 1000), "feature means alone tell as much"),
        (Estimate(-0.05, -0.08, -0.02, 1000), "feature means alone tell more"),
        (Estimate(0.05, 0.02, 0.08, 1000), ""),
    ],
    ids=["as much", "more", "less"],
)
def test_the_sentence_says_what_needs_no_gradient(beyond: Estimate, words: str) -> None:
    text = text_of(measured(AUROC_OF, labels=Estimate(0.3, 0.2, 0.4, 1000), features=beyond))
    assert text.startswith("Yes")
    assert (words in text) if words else "the batch's gradient" not in text
    if words:
        assert f"AUROC {0.80 - beyond.value:.3f}" in text


def test_the_strongest_baseline_counts() -> None:
    test = measured(
        AUROC_OF, labels=Estimate(0.0, -0.02, 0.02, 99), features=Estimate(0.2, 0.1, 0.3, 99)
    )
    found = beyond_of(test)
    assert found is not None
    assert (found.alone, found.auroc, found.is_shown) == ("labels alone", 0.80, False)


def test_a_run_without_these_figures_says_nothing() -> None:
    test = measured(AUROC_OF)
    assert beyond_of(test) is None
    assert "without the batch's gradient" not in text_of(test)


@pytest.mark.parametrize("batches", ["reuse", "fresh"])
def test_figures_are_differences_on_the_same_trials(batches: str) -> None:
    """Fresh batches in each round are other trials than those of the baselines."""
    stage = small_stage(records(1.2, n=1500), Energies(batches=200), batches=batches)
    found = audit(stage)
    tests = adversary_tests(found)
    assert not set(metric_titles(tests)) & set(BEYOND.values())
    if batches == "fresh":
        assert not any(one.metric in BEYOND.values() for one in found)
        return
    (test,) = tests
    auroc = test.whole(AUROC)
    assert auroc is not None
    for name in BASELINES:
        beyond = test.whole(BEYOND[name])
        assert beyond is not None
        alone = next(one.estimate for one in found if one.metric == name)
        assert beyond.estimate.value == pytest.approx(auroc.estimate.value - alone.value)
        assert beyond.estimate.low < beyond.estimate.value < beyond.estimate.high
    (row,) = rows_of_tests(verdicts(RUN, found))
    assert row.beyond is not None
    assert row.beyond.value == min(test.whole(one).estimate.value for one in BEYOND.values())


def test_several_seeds_keep_the_comparison() -> None:
    found = audit(small_stage(records(1.2, n=1500), Energies(batches=100), trials=200, rounds=1))
    other = [replace(one, seed=1) for one in found]
    (test,) = adversary_tests(combined([*found, *other]))
    assert beyond_of(test) is not None
