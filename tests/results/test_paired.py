"""The difference of two AUROCs on the same trials: DeLong's variance, coverage, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.results.overlap import Overlap
from leakgauge.results.paired import auroc_difference
from leakgauge.results.scores import ScoredTrials


def pair(
    shifts: tuple[float, float], common: float, *, n: int = 400, seed: int = 0
) -> tuple[ScoredTrials, ScoredTrials]:
    """Two adversaries that see unit Gaussians of these shifts and this correlation."""
    rng = stream(seed, "pair")
    truth = np.arange(n) % 2
    noise = rng.multivariate_normal([0, 0], [[1, common], [common, 1]], size=n)
    scores = noise + np.array(shifts) * truth[:, None]
    return tuple(  # type: ignore[return-value]
        ScoredTrials(truth, np.stack([0 * one, one], axis=1), np.arange(n) // 2) for one in scores.T
    )


def exact(shifts: tuple[float, float]) -> float:
    first, second = (float(stats.norm.cdf(one / np.sqrt(2))) for one in shifts)
    return first - second


def delong(one: ScoredTrials, other: ScoredTrials) -> float:
    """Standard error by DeLong's placements, written out."""
    parts = []
    for each in (one, other):
        score = each.log_posterior[:, 1]
        positive, negative = score[each.truth == 1], score[each.truth == 0]
        wins = (positive[:, None] > negative[None]).astype(float)
        parts.append((wins.mean(1), wins.mean(0)))
    (a1, a0), (b1, b0) = parts
    return float(np.sqrt((a1 - b1).var(ddof=1) / len(a1) + (a0 - b0).var(ddof=1) / len(a0)))


@pytest.mark.parametrize("overlapping", [False, True], ids=["blocks", "records"])
def test_the_interval_has_the_width_of_delongs(overlapping: bool) -> None:
    one, other = pair((1.2, 0.8), 0.7, n=1200)
    if overlapping:  # each trial has records of its own
        overlap = Overlap.of(np.arange(1200)[:, None], one.truth)
        one, other = replace(one, overlap=overlap), replace(other, overlap=overlap)
    found = auroc_difference(one, other, rng=stream(0, "resample"))
    error = delong(one, other)
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_intervals_hold_the_true_difference() -> None:
    """200 of them, half without any difference; 95 % should hold it."""
    held = 0
    for seed in range(200):
        shifts = (1.0, 1.0) if seed % 2 else (1.2, 0.6)
        both = pair(shifts, 0.6, seed=seed)
        found = auroc_difference(*both, rng=stream(seed, "resample"), replicates=200)
        held += found.low <= exact(shifts) <= found.high
    assert held >= 182  # a chance of 1 in 1,000 for 95 %


def test_common_errors_cancel() -> None:
    wide, narrow = (
        auroc_difference(*pair((1.0, 1.0), common), rng=stream(0, "resample"))
        for common in (0.0, 0.95)
    )
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def test_an_adversary_does_not_differ_from_itself() -> None:
    one, _ = pair((1.0, 1.0), 0.0)
    found = auroc_difference(one, one, rng=stream(0, "resample"))
    assert found.value == 0
    assert found.low < 0 < found.high


def test_users_are_left_out_one_at_a_time() -> None:
    one, other = pair((1.2, 0.8), 0.7, n=600)
    users = stream(0, "users").permuted(np.tile(np.arange(12), (600, 1)), axis=1)[:, :2]
    with_users = replace(one, users=users), replace(other, users=users)
    found = auroc_difference(*with_users, rng=stream(0, "resample"))
    assert found.low < exact((1.2, 0.8)) < found.high


def test_other_trials_are_refused() -> None:
    one, other = pair((1.0, 1.0), 0.0)
    with pytest.raises(InputError, match="scored different trials"):
        auroc_difference(one, replace(other, truth=1 - other.truth), rng=stream(0, "resample"))
