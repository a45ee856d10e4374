"""Intervals of scores from trials that share users: the jackknife over users."""

import math

import numpy as np
import pytest

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results.intervals import jackknife_interval
from leakgauge.results.scores import ScoredTrials, figures, score

Judgements = tuple[np.ndarray, np.ndarray, np.ndarray]


def played(signal: float, *, users: int, m: int, trials: int, seed: int) -> Judgements:
    """Truth, log posteriors and users of trials among users with means that differ by ``signal``.

    As in the game, the candidate batch of a user is the same in all trials. Observations of a user
    come from half of the user's records, which have a different mean.
    """
    rng = stream(seed, "played")
    centre = signal * rng.normal(size=(users, 4))
    held = centre + rng.normal(size=(users, 4))
    observed = centre + 0.5 * rng.normal(size=(users, 4))
    index = np.argsort(rng.random((trials, users)), axis=1)[:, :m]
    truth = rng.integers(m, size=trials)
    seen = observed[index[np.arange(trials), truth]] + rng.normal(size=(trials, 4))
    return truth, -np.linalg.norm(seen[:, None] - held[index], axis=2), index


def auroc_of(judgements: Judgements):
    truth, said, users = judgements
    judged = ScoredTrials(truth, said, np.zeros(len(truth), dtype=np.int64), users)
    return score(judged, majority=1 / said.shape[1], rng=stream(0, "boot"))["auroc"]


@pytest.mark.calibration
@pytest.mark.parametrize("signal", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
def test_intervals_cover_the_auroc_of_the_population(signal: float) -> None:
    """Fifteen users, five candidates, 95 % intervals: 88 or fewer of 100 have a chance of .4 %."""
    setting = {"users": 15, "m": 5}
    true = 0.5
    if signal:
        many = [played(signal, trials=4000, seed=1000 + s, **setting) for s in range(100)]
        zeros = np.zeros(4000, dtype=np.int64)
        true = np.mean([figures(ScoredTrials(t, said, zeros))["auroc"] for t, said, _ in many])
    found = [auroc_of(played(signal, trials=500, seed=s, **setting)) for s in range(100)]
    assert sum(one.low <= true <= one.high for one in found) > 88
    spread = np.std([one.value for one in found])
    half = np.mean([one.high - one.low for one in found]) / 2
    assert 2.14 * spread < half < 2 * 2.14 * spread  # 2.14: Student t, 14 degrees of freedom


def test_an_interval_leaves_out_one_person_after_the_other() -> None:
    """Against the definition of the jackknife, user by user."""
    rng, n, t = stream(0, "jack"), 9, 2.306004135  # the 97.5 % point with 8 degrees of freedom
    users = np.argsort(rng.random((400, n)), axis=1)[:, :3]
    truth = rng.integers(3, size=400)
    said = (
        rng.normal(size=(400, 3)) + 0.6 * np.eye(3)[truth] * users[np.arange(400), truth][:, None]
    )
    zeros = np.zeros(400, dtype=np.int64)
    found = score(ScoredTrials(truth, said, zeros, users), majority=1 / 3, rng=stream(0, "boot"))
    for metric in ("auroc", "success", "tpr_at_1_fpr"):
        values = []
        for user in range(n):
            left = [row for row in range(400) if user not in users[row]]
            values.append(figures(ScoredTrials(truth[left], said[left], zeros[left]))[metric])
        mean = sum(values) / n
        error = math.sqrt((n - 1) / n * sum((one - mean) ** 2 for one in values))
        low, high = found[metric].low, found[metric].high
        assert low == pytest.approx(max(0, found[metric].value - t * error))
        assert high == pytest.approx(min(1, found[metric].value + t * error))
    assert found["advantage"].low == pytest.approx((found["success"].low - 1 / 3) * 1.5)


def test_perfect_judgements_of_few_persons_are_not_certain() -> None:
    rng = stream(0, "perfect")
    users = np.argsort(rng.random((300, 10)), axis=1)[:, :3]
    truth = rng.integers(3, size=300)
    judged = ScoredTrials(truth, 5.0 * np.eye(3)[truth], np.zeros(300, dtype=np.int64), users)
    found = score(judged, majority=1 / 3, rng=stream(0, "boot"))["auroc"]
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025**0.1)  # no error of ten users: Clopper-Pearson


@pytest.mark.parametrize("bad", [np.array([0.5]), np.array([0.5, np.nan])])
def test_users_who_cannot_be_left_out_are_refused(bad: np.ndarray) -> None:
    with pytest.raises(InputError, match="too few to leave one out"):
        jackknife_interval(0.5, bad)
