"""The attack on a client's property does not let one unusual coordinate rule its answer."""

import numpy as np

from leakgauge.federation.run.properties import _fitted, _log_posterior


def test_a_coordinate_that_hardly_changes_in_simulated_updates_does_not_rule_the_answer():
    """A unit that a few simulated clients wake up a little, and the real client much."""
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    features = rng.normal(size=(60, 6)).astype(np.float32)
    features[:, 0] += 6 * truth
    features[:, 1] = 1e-6 * rng.normal(size=60)
    fitted = _fitted([(features, truth)], 1)
    real = np.zeros((2, 6), np.float32)
    real[:, 0] = 0, 6
    awake = real.copy()
    awake[:, 1] = 100
    for seen in (real, awake, -awake + 2 * real):
        assert _log_posterior(fitted, seen).argmax(1).tolist() == [0, 1]
