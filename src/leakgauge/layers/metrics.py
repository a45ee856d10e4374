"""The metrics of the question where in a network it leaks."""

import math

from leakgauge.results.metrics import UTILITY, Metric
from leakgauge.results.scores import ADVANTAGE, AUROC, SUCCESS, TPR_AT_1_FPR

INFORMATION = "v_information"
INFORMATION_NATS = "v_information_nats"
INFORMATION_SHARE = "v_information_share"
KERNEL, KERNEL_SHARE = "kernel_information", "kernel_information_share"
SIZE, LOG_SIZE = "size", "log_size"
BEFORE, AFTER = "advantage_before", "advantage_after"
CORRELATION, PARTIAL = "correlation", "partial_correlation"

NORMS = ("f", "1", "inf")
KINDS = ("printed", "raw", "mean", "median")
SENSITIVITIES = tuple(f"sensitivity_{kind}_{norm}" for kind in KINDS for norm in NORMS)
DIRECTIONS = tuple(f"direction_{norm}" for norm in NORMS)

AGAINST = (INFORMATION, *SENSITIVITIES, KERNEL, SIZE, LOG_SIZE)
"""Measures whose correlation with the AUROC is computed."""


def _sensitivity(title: str) -> Metric:
    return Metric(title=title, high=math.inf, tabled=False)


METRICS = {
    AUROC: Metric(title="AUROC", chance=0.5, headline=True),
    SUCCESS: Metric(title="Success rate"),
    ADVANTAGE: Metric(title="Advantage", chance=0.0),
    TPR_AT_1_FPR: Metric(title="TPR at 1 % FPR", tabled=False),
    INFORMATION: Metric(
        title="V-information", unit="bits", low=-math.inf, high=math.inf, chance=0.0
    ),
    INFORMATION_NATS: Metric(
        title="V-information", unit="nats", low=-math.inf, high=math.inf, chance=0.0, tabled=False
    ),
    INFORMATION_SHARE: Metric(
        title="V-information, share of the entropy", low=-math.inf, chance=0.0, tabled=False
    ),
    **{name: _sensitivity(name.replace("_", " ").capitalize()) for name in SENSITIVITIES},
    **{name: _sensitivity(f"Property's {name.replace('_', ', ')} norm") for name in DIRECTIONS},
    KERNEL: Metric(title="I(X; T), bounds", unit="bits", high=math.inf, tabled=False),
    KERNEL_SHARE: Metric(title="I(X; T) / log2 N, bounds", tabled=False),
    SIZE: Metric(title="Weights", high=math.inf, tabled=False, of_model=True),
    **{
        f"{kind}_{name}": Metric(
            title=f"{title}: {name.replace('_', ' ')}", low=-1.0, tabled=False, of_model=True
        )
        for kind, title in (
            (CORRELATION, "Correlation with the AUROC"),
            (PARTIAL, "Partial correlation with the AUROC, given log size"),
        )
        for name in AGAINST
    },
    BEFORE: Metric(title="Advantage before the advice", tabled=False),
    AFTER: Metric(title="Advantage after the advice", tabled=False),
    **UTILITY,
}
"""Metrics by name. The name of a layer's figure ends with the layer: ``"auroc: conv1"``."""


def of_layer(metric: str, layer: str) -> str:
    """Return the name of a layer's figure.

    >>> of_layer(AUROC, "conv1")
    'auroc: conv1'
    """
    return f"{metric}: {layer}"
