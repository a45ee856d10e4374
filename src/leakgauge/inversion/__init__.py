"""Can the records be rebuilt? Gradient inversion, from DLG to AGIC.

References:
    Xu et al., AGIC: Approximate Gradient Inversion Attack on Federated Learning, SRDS 2022.
"""

from leakgauge.core.lazy import attach

_PLACES = {
    "PRESETS": "search.presets",
    "AttackOptions": "observed",
    "Cosine": "search.objective",
    "DepthWeights": "search.layer_weights",
    "Epoch": "epochs.epoch",
    "EpochPlan": "epochs.epoch",
    "Knowledge": "observed",
    "LabelGuess": "labels.inference",
    "LayerWeighted": "search.objective",
    "LayerWeights": "search.layer_weights",
    "LocalSteps": "search.simulate",
    "Lpips": "metrics.lpips",
    "Objective": "search.objective",
    "Method": "methods",
    "ObservedUpdates": "observed",
    "Reconstruction": "observed",
    "Recovered": "exact",
    "Search": "search.presets",
    "SearchSettings": "search.settings",
    "SquaredError": "search.objective",
    "Traits": "methods",
    "adapted": "search.adaptive",
    "adapted_settings": "search.adaptive",
    "adapts": "search.adaptive",
    "align_to_truth": "metrics.similarity",
    "arrange": "epochs.assignment",
    "default_lpips": "metrics.lpips",
    "differentiable_gradients": "double_backward.gradients",
    "infer_labels": "labels.inference",
    "joint_reconstruct": "epochs.joint",
    "label_accuracy": "labels.inference",
    "match_epochs": "epochs.assignment",
    "matching_accuracy": "epochs.assignment",
    "per_sample_reconstruct": "epochs.per_sample",
    "preset": "search.presets",
    "psnr": "metrics.similarity",
    "reconstruct": "search.engine",
    "recover_first_layer": "exact",
    "refine_assignment": "epochs.refinement",
    "share_recovered": "exact",
    "ssim": "metrics.similarity",
}
_ELSEWHERE = {
    "Client": "leakgauge.training.sending",
    "Pixels": "leakgauge.data.pixels",
    "Sent": "leakgauge.training.sending",
    "mean_estimate": "leakgauge.results.statistics",
    "send": "leakgauge.training.sending",
    "share_estimate": "leakgauge.results.statistics",
}

__getattr__, __dir__, __all__ = attach(
    __name__, {**{name: f"{__name__}.{place}" for name, place in _PLACES.items()}, **_ELSEWHERE}
)
