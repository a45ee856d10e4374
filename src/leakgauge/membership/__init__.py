"""White-box membership inference (Nasr et al., IEEE S&P 2019).

An attacker with a model's parameters computes the outputs, the loss and the gradient of the loss
for any record, and infers from them whether the model was trained on the record.
"""

from leakgauge.core.lazy import attach

_NAMES = {
    "adversaries.adversary": "Labelled MembershipAdversary MembershipAttack MembershipKnowledge "
    "Needs ShadowRecords",
    "adversaries.learned": "Gradients HiddenOutputs Label LabelLoss Probabilities ShadowModel "
    "WhiteBox",
    "adversaries.thresholds": "Confidence GradientNorm Loss RMIA",
    "adversaries.unsupervised": "NormClusters Spectral",
    "observation": "Observed observe",
}
"""Public names by module."""

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()},
)
