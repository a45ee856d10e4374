"""The metrics of a trained model: what it is good for."""

import math

from leakgauge.results.metrics import Metric
from leakgauge.results.scores import ACCURACY, BALANCED_ACCURACY, MACRO_F1, R2, TASK_AUROC

UTILITY = {
    ACCURACY: Metric(title="Accuracy", higher_is_worse=False, of_model=True),
    BALANCED_ACCURACY: Metric(title="Balanced accuracy", higher_is_worse=False, of_model=True),
    R2: Metric(title="R²", low=-math.inf, chance=0.0, higher_is_worse=False, of_model=True),
    MACRO_F1: Metric(title="Macro F1", higher_is_worse=False, of_model=True),
}
"""By name; one of them fits a run's labels."""

OF_CLASSES = {
    TASK_AUROC: Metric(title="AUROC of the task", chance=0.5, higher_is_worse=False, of_model=True),
}
"""By name; beside one of ``UTILITY`` where the labels are classes."""
