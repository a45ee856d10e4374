"""Baselines: labels and feature means reveal the secret without any gradient."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset
from leakgauge.data import from_arrays
from leakgauge.inference import Energies, Plda
from leakgauge.inference.run import audit
from leakgauge.inference.run.baselines import baselines
from leakgauge.results.measurements import Measurement
from leakgauge.results.scores import AUROC, FEATURES_ALONE, LABELS_ALONE, ScoredTrials, figures
from support.synthetic import records, small_stage


def alone(data: Dataset, **settings) -> dict[str, float]:
    attack = Plda() if settings.get("ask") == "user" else Energies(batches=200)
    stage = small_stage(data, attack, rounds=1, **settings)
    truth = stage.trials.secret.numpy()
    return {
        name: figures(ScoredTrials(truth, posterior, truth))[AUROC]
        for name, posterior in baselines(stage).items()
    }


def labelled(shift: float) -> Dataset:
    """Labels go with the secret, and no feature does."""
    data = records(0.0, n=1800)
    rng = stream(3, "labels")
    secret = data.secrets["s"].numpy()
    y = (rng.normal(size=len(secret)) + shift * secret > 0).astype(np.int64)
    return replace(data, y=torch.from_numpy(y))


def test_features_that_go_with_the_secret_tell_by_their_means() -> None:
    """The mean of 8 records moves by 1.2 standard deviations of one: AUROC Phi(1.2 sqrt(8 / 2))."""
    found = alone(records(1.2, n=1800))
    assert found[FEATURES_ALONE] == pytest.approx(0.9918, abs=0.02)
    assert found[LABELS_ALONE] == pytest.approx(0.5, abs=0.12)


def test_labels_that_go_with_the_secret_tell_by_their_counts() -> None:
    found = alone(labelled(1.5))
    assert found[LABELS_ALONE] > 0.9
    assert found[FEATURES_ALONE] == pytest.approx(0.5, abs=0.15)


def test_nothing_tells_where_nothing_goes_with_the_secret() -> None:
    several = [alone(records(0.0, n=1800, seed=seed)) for seed in range(4)]
    for name in (LABELS_ALONE, FEATURES_ALONE):
        assert np.mean([one[name] for one in several]) == pytest.approx(0.5, abs=0.1)


def test_candidates_are_compared_by_their_labels() -> None:
    """Each user has different labels, and no features."""
    rng = stream(4, "users")
    users = np.repeat(np.arange(150), 20)
    share = rng.beta(0.2, 0.2, size=150)
    y = (rng.random(3000) < share[users]).astype(np.int64)
    data = from_arrays(rng.normal(size=(3000, 3)), y, {"s": y}, users=users)
    found = alone(data, ask="user")
    assert set(found) == {LABELS_ALONE}
    assert found[LABELS_ALONE] > 0.8


def test_they_are_measured_with_the_adversary_and_do_not_depend_on_the_round() -> None:
    found = [
        m
        for rounds in (1, 2)
        for m in audit(small_stage(records(1.2, n=1800), Energies(batches=60), rounds=rounds))
        if m.metric in (LABELS_ALONE, FEATURES_ALONE)
    ]
    by_metric: dict[str, list[Measurement]] = {}
    for one in found:
        by_metric.setdefault(one.metric, []).append(one)
    assert set(by_metric) == {LABELS_ALONE, FEATURES_ALONE}
    for one, other in by_metric.values():
        assert one.estimate == other.estimate
        assert one.chance == 0.5
