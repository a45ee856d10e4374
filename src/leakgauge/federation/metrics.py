"""The metrics of the question about kept updates."""

import math

from leakgauge.membership.metrics import TPR_AT_01_FPR
from leakgauge.results.metrics import Metric
from leakgauge.results.scores import ADVANTAGE, AUROC, TPR_AT_1_FPR

PSNR, LOSS, MATCHED = "psnr", "loss", "matched"
AUROC_OVER, TPR_1_OVER, TPR_01_OVER = (
    f"{one}_over_rounds" for one in (AUROC, TPR_AT_1_FPR, TPR_AT_01_FPR)
)
PROPERTY_AUROC, PROPERTY_RIGHT = "property_auroc", "property_right"

STARTS = "starts"
"""The detail of a measurement that says how many starts a search had."""

METRICS = {
    PSNR: Metric(title="PSNR", unit="dB", low=-math.inf, high=math.inf, headline=True),
    LOSS: Metric(title="Loss", high=math.inf, higher_is_worse=False, tabled=False),
    MATCHED: Metric(title="Update matched", tabled=False),
    AUROC: Metric(title="AUROC, membership", chance=0.5, headline=True),
    ADVANTAGE: Metric(title="Advantage, membership", chance=0.0),
    AUROC_OVER: Metric(title="AUROC, membership over all rounds", chance=0.5),
    TPR_1_OVER: Metric(title="TPR at 1 % FPR, over all rounds"),
    TPR_01_OVER: Metric(title="TPR at 0.1 % FPR, over all rounds"),
    PROPERTY_AUROC: Metric(title="AUROC, property", chance=0.5),
    PROPERTY_RIGHT: Metric(title="Clients named right"),
}
"""Metrics by name. A figure of one client in one round ends with its name: ``"auroc: 2"``."""


def of_client(metric: str, client: str) -> str:
    """Return the metric of a single client.

    >>> of_client(AUROC, "2")
    'auroc: 2'
    """
    return f"{metric}: {client}"
