"""White-box membership inference (Nasr et al., IEEE S&P 2019).

An attacker with a model's parameters computes the outputs, the loss and the gradient of the loss
for any record, and infers from them whether the model was trained on the record.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "MembershipAdversary": "adversaries.adversary",
    "MembershipAttack": "adversaries.adversary",
    "Confidence": "adversaries.thresholds",
    "GradientNorm": "adversaries.thresholds",
    "Gradients": "adversaries.learned",
    "HiddenOutputs": "adversaries.learned",
    "MembershipKnowledge": "adversaries.adversary",
    "Label": "adversaries.learned",
    "LabelLoss": "adversaries.learned",
    "Labelled": "adversaries.adversary",
    "Loss": "adversaries.thresholds",
    "Needs": "adversaries.adversary",
    "NormClusters": "adversaries.unsupervised",
    "Observed": "observation",
    "Probabilities": "adversaries.learned",
    "RMIA": "adversaries.thresholds",
    "ShadowRecords": "adversaries.adversary",
    "ShadowModel": "adversaries.learned",
    "Spectral": "adversaries.unsupervised",
    "WhiteBox": "adversaries.learned",
    "observe": "observation",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {name: f"{__name__}.{place}" for name, place in _PLACES.items()}
)
