"""Utility of a model, against scikit-learn and the coverage from a closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, r2_score, roc_auc_score

from leakgauge.core.rng import stream
from leakgauge.results import utility
from leakgauge.results.intervals import draw_blocks
from leakgauge.results.utility import balanced_accuracy, class_auroc, macro_f1, r2


def numbers(seed: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = 1e4 + rng.normal(size=(n, k))
    return truth, truth + rng.normal(size=(n, k))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 60), st.integers(1, 4))
def test_the_figures_are_those_of_scikit_learn(seed: int, n: int, k: int) -> None:
    truth, predicted = numbers(seed, n, k)
    found = r2(truth, predicted, np.arange(n), rng=stream(0, "u"), replicates=20)
    assert found is not None
    assert found.value == pytest.approx(r2_score(truth, predicted), rel=1e-6)
    assert found.low <= found.value <= found.high <= 1
    yes, named = truth > 1e4, predicted > 1e4 + 0.5
    f1 = macro_f1(yes, named, np.arange(n), rng=stream(0, "u"), replicates=20)
    average = "macro" if k > 1 else "binary"
    one = (yes, named) if k > 1 else (yes[:, 0], named[:, 0])
    assert f1.value == pytest.approx(f1_score(*one, average=average, zero_division=0))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 5))
def test_balanced_accuracy_is_that_of_scikit_learn(seed: int, n: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    truth = 2 * rng.integers(classes, size=n)  # codes need not follow each other
    predicted = np.where(rng.random(n) < 0.6, truth, 2 * rng.integers(classes, size=n))
    found = balanced_accuracy(truth, predicted, np.arange(n), rng=stream(0, "u"), replicates=20)
    # scikit-learn warns of classes that no record has, and of one class alone
    if np.isin(predicted, truth).all() and len(np.unique(truth)) > 1:
        assert found.value == pytest.approx(balanced_accuracy_score(truth, predicted))
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_balanced_accuracy_of_one_class_named_always_is_one_over_their_number() -> None:
    truth = np.repeat([0, 1], [95, 5])
    constant = np.zeros(100, dtype=np.int64)
    found = balanced_accuracy(truth, constant, np.arange(100), rng=stream(0, "u"))
    assert found.value == 0.5
    assert found.low == pytest.approx(1 - found.high)


@pytest.mark.parametrize("ties", [False, True])
def test_the_auroc_of_classes_is_that_of_scikit_learn(ties: bool) -> None:
    rng = np.random.default_rng(5)
    truth = rng.integers(4, size=300)
    shares = rng.dirichlet(np.ones(4), size=300) + 0.5 * np.eye(4)[truth]
    shares = (shares.round(1) if ties else shares) + 1e-3
    shares /= shares.sum(axis=1, keepdims=True)
    kinds = {"rng": stream(0, "u"), "replicates": 20}
    several = class_auroc(truth[:, None] == np.arange(4), shares, np.arange(300), **kinds)
    assert several is not None
    expected = roc_auc_score(truth, shares, multi_class="ovr", average="macro")
    assert several.value == pytest.approx(expected)
    first = (truth == 1)[:, None]
    one = class_auroc(first, shares[:, 1:2], np.arange(300), **kinds)
    assert one is not None
    assert one.value == pytest.approx(roc_auc_score(first[:, 0], shares[:, 1]))
    absent = np.zeros((300, 1), dtype=bool)
    again = class_auroc(np.hstack([first, absent]), shares[:, 1:3], np.arange(300), **kinds)
    assert again is not None
    assert again.value == one.value  # a class that no record has does not count
    assert class_auroc(absent, shares[:, :1], np.arange(300), **kinds) is None
    assert class_auroc(first, shares[:, :1], np.zeros(300), **kinds) is None


def test_a_resampled_auroc_of_classes_is_that_of_the_records_it_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(6)
    truth = rng.integers(2, size=80) == 1
    score, block = rng.normal(size=80) + truth, np.arange(80) // 4
    monkeypatch.setattr(utility, "CELLS", 20 * 30)  # in chunks of 30 resamples
    found = class_auroc(truth[:, None], score[:, None], block, rng=stream(0, "u"), replicates=200)
    drawn = draw_blocks(20, 200, stream(0, "u"))
    again = [roc_auc_score(truth, score, sample_weight=times[block]) for times in drawn]
    assert found is not None
    assert min(again) <= found.low <= np.quantile(again, 0.025) + 1e-9
    assert np.quantile(again, 0.975) - 1e-9 <= found.high <= max(again)


def test_a_resample_is_the_figure_of_the_records_it_draws() -> None:
    """The interval's ends are quantiles of scikit-learn's figures on repeated records."""
    truth, predicted = numbers(3, 40, 2)
    block = np.arange(40) // 4
    found = r2(truth, predicted, block, rng=stream(0, "u"), replicates=200)
    drawn = draw_blocks(10, 200, stream(0, "u"))
    again = [r2_score(truth, predicted, sample_weight=times[block]) for times in drawn]
    assert found is not None
    assert min(again) <= found.low <= np.quantile(again, 0.025) + 1e-9
    assert np.quantile(again, 0.975) - 1e-9 <= found.high <= max(again)


@pytest.mark.calibration
def test_the_interval_covers_the_true_r2() -> None:
    """Truth of variance 1 and errors of variance 1/2: R² is 1/2."""
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(300, 1))
        predicted = truth + np.sqrt(0.5) * rng.normal(size=(300, 1))
        one = r2(truth, predicted, np.arange(300), rng=stream(seed, "u"), replicates=200)
        assert one is not None
        covered += one.low <= 0.5 <= one.high
    assert covered >= 51  # below it with a chance of 2 in 1,000 at 95 %


def test_what_has_no_figure() -> None:
    same = np.ones((6, 1))
    assert r2(same, same, np.arange(6), rng=stream(0, "u")) is None
    truth, predicted = numbers(0, 6, 1)
    assert r2(truth, predicted, np.zeros(6), rng=stream(0, "u")) is None
    whole = macro_f1(truth > 1e4, truth > 1e4, np.zeros(6), rng=stream(0, "u"))
    assert (whole.value, whole.low, whole.high) == (1.0, 0.0, 1.0)
