"""The metrics of membership inference."""

import math

from leakgauge.results.metrics import UTILITY, Metric
from leakgauge.results.scores import ADVANTAGE, AUROC, SUCCESS, TPR_AT_1_FPR, TRAIN_ACCURACY

TPR_AT_01_FPR = "tpr_at_01_fpr"
MEMBERS_NORM, OTHERS_NORM = "gradient_norm_members", "gradient_norm_others"

METRICS = {
    AUROC: Metric(title="AUROC", chance=0.5, headline=True),
    SUCCESS: Metric(title="Success rate", chance=0.5),
    ADVANTAGE: Metric(title="Advantage", chance=0.0),
    TPR_AT_1_FPR: Metric(title="TPR at 1 % FPR"),
    TPR_AT_01_FPR: Metric(title="TPR at 0.1 % FPR"),
    **UTILITY,
    TRAIN_ACCURACY: Metric(
        title="Training accuracy", higher_is_worse=False, of_model=True, tabled=False
    ),
    MEMBERS_NORM: Metric(
        title="Gradient norm of members", high=math.inf, tabled=False, of_model=True
    ),
    OTHERS_NORM: Metric(
        title="Gradient norm of others", high=math.inf, tabled=False, of_model=True
    ),
}
"""Metrics by name. Success is on balanced records; accuracies and norms are the model's."""

NEEDS = {TPR_AT_1_FPR: "needs 100 non-members", TPR_AT_01_FPR: "needs 1,000 non-members"}
"""Why a figure is left out: fewer non-members show no false positive rate so small."""

LEAKAGE = (AUROC, SUCCESS, ADVANTAGE, TPR_AT_1_FPR, TPR_AT_01_FPR)
"""The metrics of an attack."""
