"""Intervals of scores from trials that share records: the jackknife over records."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results import overlap
from leakgauge.results.few_errors import independent
from leakgauge.results.information import information_lower_bound
from leakgauge.results.overlap import Overlap
from leakgauge.results.scores import ScoredTrials, each_value, figures, influences, score

BATCH, SHIFT = 16, 0.2


def played(seed: int, *, records: int = 600, trials: int = 1500, shift: float = SHIFT):
    """Return trials whose batches are draws from records with the scores N(0, 1) and N(shift, 1).

    The adversary sees the sum of a batch's scores and some noise.
    """
    rng = stream(seed, "records")
    x = rng.normal(size=records) + shift * (np.arange(records) % 2)
    truth = rng.integers(2, size=trials)
    rows = 2 * rng.integers(records // 2, size=(trials, BATCH)) + truth[:, None]
    odds = 0.2 * (x[rows] - shift / 2).sum(axis=1) + 0.1 * rng.normal(size=trials)
    said = np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)], axis=1)
    return truth, said, rows


def judged(truth, said, rows) -> ScoredTrials:
    zeros = np.zeros(len(truth), dtype=np.int64)
    return ScoredTrials(truth, said, zeros, overlap=Overlap.of(rows, truth))


def auroc_of_infinitely_many(shift: float) -> float:
    """The AUROC of sums of B scores, for records without end."""
    spread = math.sqrt(BATCH + 0.5**2)
    return float(stats.norm.cdf(BATCH * shift / spread / math.sqrt(2)))


def covered(shift: float, data_sets: int) -> dict[str, float]:
    """Return by metric how many intervals hold the truth, and their width by that of chance."""
    found = [
        score(judged(*played(seed, shift=shift)), majority=0.5, rng=stream(seed, "boot"))
        for seed in range(data_sets)
    ]
    true = auroc_of_infinitely_many(shift)
    right = float(stats.norm.cdf(BATCH * shift / 2 / math.sqrt(BATCH + 0.25)))
    counts = {
        metric: sum(one[metric].low <= known <= one[metric].high for one in found)
        for metric, known in (("auroc", true), ("success", right))
    }
    half = np.mean([one["auroc"].high - one["auroc"].low for one in found]) / 2
    return {**counts, "width": half / (1.96 * np.std([one["auroc"].value for one in found]))}


@pytest.mark.slow
@pytest.mark.calibration
@pytest.mark.parametrize("shift", [0.0, SHIFT])
def test_intervals_cover_the_truth_of_the_population(shift: float) -> None:
    """95 % intervals: 88 or fewer of 100 have a chance of .4 %."""
    found = covered(shift, 100)
    assert min(found["auroc"], found["success"]) > 88
    assert 0.85 < found["width"] < 1.5


def test_intervals_that_count_trials_as_independent_are_caught(monkeypatch) -> None:
    """The same simulation goes red without the records: half of the intervals miss the truth."""
    whole = covered(SHIFT, 20)
    assert whole["auroc"] >= 17
    monkeypatch.setattr(Overlap, "variance", lambda self, values: values.var() / len(values))
    assert covered(SHIFT, 20)["auroc"] < 15


def test_the_jackknife_is_that_of_its_definition() -> None:
    """Unit by unit, with the mean over the trials without it."""
    rng, n, units = stream(0, "jack"), 80, 12
    rows = rng.integers(units, size=(n, 3))
    values = rng.normal(size=n) + 0.8 * (rows == 3).any(axis=1)
    left = [[i for i in range(n) if unit not in rows[i]] for unit in range(units)]
    without = [np.mean(values[some]) for some in left]
    mean = sum(without) / units
    jackknife = (units - 1) / units * sum((one - mean) ** 2 for one in without)
    noise = np.var(values, ddof=1)
    chance = (units - 1) / units * sum(1 / len(some) - 1 / n for some in left) * noise
    known = chance * (1 - math.sqrt(2 / (units - 1)))
    expected = max(jackknife - known, 0) + noise / n
    assert Overlap.of(rows).variance(values) == pytest.approx(expected)


def test_units_are_left_out_within_each_value_of_the_secret() -> None:
    """Unit by unit, with the mean over each value's trials without it, weighed by all of them."""
    rng, n, units = stream(1, "jack"), 120, 12
    rows, secret = rng.integers(units, size=(n, 3)), rng.integers(3, size=n)
    values = rng.normal(size=n) + 2.0 * secret + 0.8 * (rows == 3).any(axis=1)
    without, chance = np.zeros(units), 0.0
    for value in range(3):
        there = [i for i in range(n) if secret[i] == value]
        share, noise = len(there) / n, np.var(values[there], ddof=1)
        for unit in range(units):
            some = [i for i in there if unit not in rows[i]]
            without[unit] += share * np.mean(values[some])
            chance += share**2 * (1 / len(some) - 1 / len(there)) * noise
    chance *= (units - 1) / units
    jackknife = (units - 1) / units * sum((one - without.mean()) ** 2 for one in without)
    known = chance * (1 - math.sqrt(2 / (units - 1)))
    expected = max(jackknife - known, 0) + np.var(values, ddof=1) / n
    assert Overlap.of(rows, secret).variance(values) == pytest.approx(expected)


def test_a_mix_of_records_that_depends_on_the_secret_does_not_widen_an_interval() -> None:
    """Proportions: a batch has 0, 4, ..., 16 records of the first 300."""
    found, widths, mixed = [], [], []
    for seed in range(20):
        rng, values = stream(seed, "mix"), np.arange(0, BATCH + 1, 4)
        x, truth = rng.normal(size=600), rng.integers(5, size=2000)
        rows = rng.integers(300, size=(2000, BATCH)) + 300
        rows -= 300 * (np.arange(BATCH) < values[truth][:, None])
        x[:300] += 1
        total = x[rows].sum(axis=1)[:, None]
        said = -0.5 * (total - values) ** 2 / BATCH
        said -= np.logaddexp.reduce(said, axis=1, keepdims=True)
        trials = judged(truth, said, rows)
        of_all = replace(trials, overlap=Overlap.of(rows))
        one, other = (
            score(each, majority=0.2, rng=stream(seed, "boot"))["auroc"]
            for each in (trials, of_all)
        )
        found.append(one.value)
        widths.append((one.high - one.low) / 2)
        mixed.append((other.high - other.low) / 2)
    spread = 1.96 * np.std(found)
    assert 0.8 < np.mean(widths) / spread < 2.3  # "as if all errors were correlated"
    assert np.mean(mixed) / spread > 4


def test_what_chance_drew_is_subtracted_and_nothing_else() -> None:
    """Noise alone, no record matters: the variance is that of independent trials, and little more.

    Without the subtraction it would be about B + 1 = 17 times as much.
    """
    rng = stream(0, "noise")
    ratios = []
    for _ in range(30):
        rows, values = rng.integers(400, size=(1000, BATCH)), rng.normal(size=1000)
        ratios.append(Overlap.of(rows).variance(values) * 1000 / values.var(ddof=1))
    assert 1.0 <= np.mean(ratios) < 3.0


def test_what_records_add_is_seen() -> None:
    """Sums of record effects: the mean has the variance B^2 / G + B / n of theirs."""
    rng, found = stream(0, "effects"), []
    for _ in range(40):
        effect, rows = rng.normal(size=400), rng.integers(400, size=(1000, BATCH))
        found.append(Overlap.of(rows).variance(effect[rows].sum(axis=1)))
    assert np.mean(found) == pytest.approx(BATCH**2 / 400 + BATCH / 1000, rel=0.15)


def test_influences_are_what_figures_change_by() -> None:
    """The figures of all trials but some, computed anew, differ by the mean of the influences."""
    truth, said, rows = played(3)
    trials, rng = judged(truth, said, rows), stream(1, "left")
    whole, added = figures(trials), influences(trials)
    for _ in range(5):
        left = rng.random(len(truth)) < 0.95
        again = figures(judged(truth[left], said[left], rows[left]))
        for metric in ("auroc", "success"):
            change = again[metric] - whole[metric]
            assert change == pytest.approx(added[metric][left].mean(), abs=2e-4)


def test_perfect_judgements_are_not_certain() -> None:
    """600 records, 16 in a batch: about 38 disjoint batches without an error."""
    truth, _, rows = played(0)
    trials = judged(truth, 5.0 * np.eye(2)[truth], rows)
    found = score(trials, majority=0.5, rng=stream(0, "boot"))
    assert found["auroc"].value == found["auroc"].high == 1.0
    disjoint = 600 / np.mean([len(set(row)) for row in rows.tolist()])
    for metric in ("auroc", "success"):
        assert found[metric].low == pytest.approx(0.025 ** (1 / disjoint))
    assert independent(np.ones(1500), Overlap.of(rows)) == pytest.approx(disjoint)


def test_all_figures_have_intervals_over_records() -> None:
    """The bound of the information, and each value against the others."""
    truth, said, rows = played(5)
    trials, prior = judged(truth, said, rows), np.log([0.5, 0.5])
    found = information_lower_bound(trials, prior, rng=stream(0, "boot"))
    gains = said[np.arange(len(truth)), truth] - prior[truth]
    error = math.sqrt(Overlap.of(rows, truth).variance(gains))
    degrees = len(np.unique(rows)) - 1
    assert found.value - found.low == pytest.approx(stats.t.ppf(0.975, degrees) * error)
    first, second = each_value(trials, rng=stream(0, "boot"))
    assert first.value == pytest.approx(second.value)
    whole = score(trials, majority=0.5, rng=stream(0, "boot"))["auroc"]
    assert (second.low, second.high) == pytest.approx((whole.low, whole.high))


def test_a_record_in_all_trials_is_refused() -> None:
    rows = np.array([[0, 1], [0, 2], [0, 3]])
    with pytest.raises(InputError, match="cannot be left out"):
        Overlap.of(rows).variance(np.arange(3.0))
    assert overlap.ALL_TRIALS.startswith("a record or a user")
