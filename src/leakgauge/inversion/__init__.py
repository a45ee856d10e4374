"""Can the records be rebuilt? Gradient inversion, from DLG to AGIC.

References:
    Xu et al., AGIC: Approximate Gradient Inversion Attack on Federated Learning, SRDS 2022.
"""

from leakgauge.core.lazy import attach

_NAMES = {
    "data.pixels": "Pixels",
    "inversion.double_backward.gradients": "differentiable_gradients",
    "inversion.epochs.assignment": "arrange match_epochs matching_accuracy",
    "inversion.epochs.epoch": "Epoch EpochPlan",
    "inversion.epochs.joint": "joint_reconstruct",
    "inversion.epochs.per_sample": "per_sample_reconstruct",
    "inversion.epochs.refinement": "refine_assignment",
    "inversion.exact": "Recovered recover_first_layer share_recovered",
    "inversion.labels.inference": "LabelGuess infer_labels label_accuracy",
    "inversion.methods": "Method Traits",
    "inversion.metrics.lpips": "Lpips default_lpips",
    "inversion.metrics.similarity": "align_to_truth psnr ssim",
    "inversion.observed": "AttackOptions Knowledge ObservedUpdates Reconstruction",
    "inversion.search.adaptive": "adapted adapted_settings adapts",
    "inversion.search.engine": "reconstruct",
    "inversion.search.layer_weights": "DepthWeights LayerWeights",
    "inversion.search.objective": "Cosine LayerWeighted Objective SquaredError",
    "inversion.search.presets": "PRESETS Search preset",
    "inversion.search.settings": "SearchSettings",
    "inversion.search.simulate": "LocalSteps",
    "results.statistics": "mean_estimate share_estimate",
    "training.client": "Client",
    "training.sending": "Sent send",
}
"""Public names by module."""

__getattr__, __dir__, __all__ = attach(
    __name__,
    {name: f"leakgauge.{module}" for module, names in _NAMES.items() for name in names.split()},
)
