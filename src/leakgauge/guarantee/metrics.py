"""The metrics of the question whether a promised guarantee holds."""

import math

from leakgauge.results.metrics import Metric

EPSILON = "epsilon"
GAUSSIAN = "epsilon_gaussian"
IN_SAMPLE = "epsilon_in_sample"
GAUSSIAN_TEST = "epsilon_gaussian_test"
LAPLACE_TEST = "epsilon_laplace_test"
TRAINING = "epsilon_training"
PER_ATTRIBUTE_RATIO = "per_attribute_ratio"
HELD_OUT_RATIO = "per_attribute_ratio_held_out"
DISTANCE_OVER_CLIP = "distance_over_clip"

CLAIMED = "claimed"
"""Name in ``Measurement.theory`` of the epsilon that a filter's own parameters say."""

ODD, APART = "shape", "neighbours"
"""Details of figures whose scores contradict the known noise, and of a pair that are not
neighbours of the promise."""

DIRECTION = "direction"
"""The detail on the direction that the releases of a mechanism of others are read along."""

DIFFERENCE, COORDINATES, SHARED = "difference", "coordinates", "shared"
"""Its values: the difference of the expected gradients; weighted by each coordinate's noise; where
noise that coordinates share is least."""

METRICS = {
    EPSILON: Metric(title="Epsilon, measured", high=math.inf, chance=0.0),
    GAUSSIAN: Metric(
        title="Epsilon, measured, if the noise is Gaussian", high=math.inf, chance=0.0
    ),
    GAUSSIAN_TEST: Metric(
        title="Epsilon by the Gaussian test (whole scores of Gaussian noise; 99 % interval)",
        high=math.inf,
        chance=0.0,
    ),
    LAPLACE_TEST: Metric(
        title="Epsilon at delta 0 by the Laplace test (for Laplace noise; 99 % interval)",
        high=math.inf,
        chance=0.0,
    ),
    TRAINING: Metric(
        title="Epsilon of all releases by the Gaussian test (99 % interval)",
        high=math.inf,
        chance=0.0,
    ),
    IN_SAMPLE: Metric(title="Epsilon by the paper's estimate", high=math.inf, chance=0.0),
    PER_ATTRIBUTE_RATIO: Metric(
        title="Promised over measured, in units of N", high=math.inf, higher_is_worse=False
    ),
    HELD_OUT_RATIO: Metric(
        title="Promised over measured by other trials' threshold, in units of N",
        high=math.inf,
        higher_is_worse=False,
    ),
    DISTANCE_OVER_CLIP: Metric(title="Distance over clip", high=math.inf),
}
"""Metrics by name. The first six are epsilons, without a unit."""
