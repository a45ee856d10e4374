"""Several attacks on membership are summed with weights near equal ones, not chosen by chance."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.rng import stream
from leakgauge.federation.run.members import weigh
from leakgauge.results.roc import auroc

Drawn = tuple[np.ndarray, np.ndarray]


def drawn(seed: int, n: int, shifts: list[float], scales: list[float]) -> Drawn:
    """Scores of attacks ``[M, n]`` that see independent shifts of a unit Gaussian."""
    rng = stream(seed, "scores", n)
    member = np.arange(n) % 2 == 0
    scores = rng.normal(size=(len(shifts), n)) + np.array(shifts)[:, None] * member
    return scores * np.array(scales)[:, None], member


def on_targets(weights: np.ndarray, shifts: list[float], scales: list[float]) -> float:
    scores, member = drawn(10_000, 4000, shifts, scales)
    return float(auroc(member, weights @ scores))


@pytest.mark.calibration
def test_the_sum_beats_the_choice_by_few_validation_records() -> None:
    """Three attacks of one strength; a choice of one among them never has what all know."""
    shifts, scales = [0.5, 0.5, 0.5], [1.0, 5.0, 0.1]
    summed, picked = [], []
    for seed in range(40):
        scores, member = drawn(seed, 20, shifts, scales)
        summed.append(on_targets(weigh(scores, member), shifts, scales))
        best = max(range(3), key=lambda at: auroc(member, scores[at]))
        picked.append(on_targets(np.eye(3)[best], shifts, scales))
    assert np.mean(summed) > np.mean(picked) + 0.03


@pytest.mark.calibration
def test_many_validation_records_leave_out_what_knows_nothing() -> None:
    shifts, scales = [1.0, 0.0, 0.0], [1.0, 1.0, 1.0]
    few, many = (weigh(*drawn(1, n, shifts, scales)) for n in (10, 2000))
    assert many[0] / many.sum() > few[0] / few.sum()
    assert on_targets(many, shifts, scales) > on_targets(np.eye(3)[0], shifts, scales) - 0.005


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 40), factor=st.floats(0.01, 100))
def test_weights_do_not_depend_on_the_units_of_a_score(seed: int, n: int, factor: float) -> None:
    scores, member = drawn(seed, n, [0.5, 0.2], [1.0, 1.0])
    scale = np.array([factor, 1.0])
    weights = weigh(scores * scale[:, None], member) * scale
    np.testing.assert_allclose(weights, weigh(scores, member), rtol=1e-3, atol=1e-3)


def test_validation_that_contradicts_every_attack_leaves_equal_weights() -> None:
    """A sum without any weight would hide what the attacks find on other records."""
    member = np.arange(400) % 2 == 0
    scores = np.where(member, -1.0, 1.0) + stream(0, "few").normal(size=(3, 400)) / 10
    weights = weigh(scores, member)
    assert (weights > 0).all()
