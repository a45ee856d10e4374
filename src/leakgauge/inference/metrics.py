"""The metrics of inference."""

import math

from leakgauge.results.metrics import OF_CLASSES, UTILITY, Metric
from leakgauge.results.scores import (
    ADVANTAGE,
    AUROC,
    BEYOND_FEATURES,
    BEYOND_LABELS,
    FEATURES_ALONE,
    INFORMATION,
    LABELS_ALONE,
    MOST_AT_RISK,
    SUCCESS,
    TPR_AT_1_FPR,
    WORST_VALUE,
)

METRICS = {
    AUROC: Metric(title="AUROC", chance=0.5, headline=True),
    TPR_AT_1_FPR: Metric(title="TPR at 1 % FPR"),
    SUCCESS: Metric(title="Success rate"),
    ADVANTAGE: Metric(title="Advantage", chance=0.0),
    INFORMATION: Metric(
        title="Information told, at least", unit="nats", low=-math.inf, high=math.inf, chance=0.0
    ),
    MOST_AT_RISK: Metric(title="Success on the user most at risk", tabled=False),
    WORST_VALUE: Metric(title="AUROC of the value that leaks most", chance=0.5, tabled=False),
    **UTILITY,
    **OF_CLASSES,
    LABELS_ALONE: Metric(title="AUROC of labels alone", chance=0.5, tabled=False, of_model=True),
    FEATURES_ALONE: Metric(
        title="AUROC of feature means alone", chance=0.5, tabled=False, of_model=True
    ),
    BEYOND_LABELS: Metric(title="AUROC beyond labels alone", low=-1.0, chance=0.0, tabled=False),
    BEYOND_FEATURES: Metric(
        title="AUROC beyond feature means alone", low=-1.0, chance=0.0, tabled=False
    ),
}
"""Metrics by name.

Accuracy, R², macro F1 and the AUROC of the task belong to the trained model, the baselines need no
gradients, the others belong to an adversary. The chance levels of the TPR and the success rate
depend on the number of trials and on the priors of the secret.
"""

BASELINES = {LABELS_ALONE: "labels alone", FEATURES_ALONE: "feature means alone"}
"""Baselines by metric, in a few words."""

BEYOND = {LABELS_ALONE: BEYOND_LABELS, FEATURES_ALONE: BEYOND_FEATURES}
"""Metrics of what an adversary finds beyond a baseline, by that of the baseline."""

LEAKAGE = {name: metric.label for name, metric in METRICS.items() if not metric.of_model}
"""Labels of the metrics of an adversary, by name."""
