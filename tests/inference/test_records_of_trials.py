"""The records of an inference run's trials: their test, rows and sentence."""

from dataclasses import replace

import numpy as np

from leakgauge.core.rng import stream
from leakgauge.inference.run.exposing import record_tests
from leakgauge.inference.run.readings import RunReading
from leakgauge.inference.words import FRESH
from leakgauge.results.measurements import ACCUMULATED
from support.synthetic import records, small_stage


def test_a_record_whose_batches_are_named_is_named_by_its_row() -> None:
    stage = small_stage(records(0.0, n=3000), rounds=1)
    rows = stage.trials.rows.numpy()
    planted = int(np.bincount(rows.ravel()).argmax())
    odds = stream(0, "odds").normal(size=len(rows)) + 9.0 * (rows == planted).any(axis=1)
    truth = stage.trials.secret.numpy()
    lead = {"static": ("panel", RunReading(ACCUMULATED, named(odds, truth)))}
    assert record_tests(stage, lead, alone=True) == [], "rows in the user's data are unknown"
    placed = replace(stage, positions=np.arange(len(stage.private)) + 1000)
    (found,) = record_tests(placed, lead, alone=True)
    assert found.rows[np.argmax(found.excess)] == planted + 1000
    worst = int(np.argmax(found.excess))
    assert found.figure[worst] == 1.0 > found.guess[worst]
    assert worst == np.argmin(found.p_value)
    assert (found.ask, found.adversary, found.secret) == ("property", "panel", stage.secret)
    assert found.worst.startswith("Row ")
    fresh = replace(placed, spec=replace(placed.spec, batches=FRESH))
    assert record_tests(fresh, lead, alone=True) == []


def named(odds: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return log posteriors ``[n, 2]`` with these log odds of the true secret."""
    of_one = np.where(truth == 1, odds, -odds)
    return np.stack([-np.logaddexp(0, of_one), -np.logaddexp(0, -of_one)], axis=1)
