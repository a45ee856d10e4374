"""Can the records be rebuilt? Gradient inversion, from DLG to AGIC."""

from leakgauge.data.pixels import Pixels
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.epochs.assignment import (
    EpochPlan,
    arrange,
    match_epochs,
    matching_accuracy,
)
from leakgauge.inversion.epochs.joint import Epoch, joint_reconstruct
from leakgauge.inversion.epochs.refinement import refine_assignment
from leakgauge.inversion.exact import Recovered, recover_first_layer, share_recovered
from leakgauge.inversion.labels.inference import LabelGuess, infer_labels, label_accuracy
from leakgauge.inversion.metrics.lpips import Lpips, default_lpips
from leakgauge.inversion.metrics.similarity import (
    align_to_truth,
    psnr,
    ssim,
)
from leakgauge.inversion.search.adaptive import adapted, adapted_settings, adapts
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.layer_weights import LayerWeights
from leakgauge.inversion.search.objective import Cosine, LayerWeighted, Objective, SquaredError
from leakgauge.inversion.search.presets import PRESETS, preset
from leakgauge.inversion.search.settings import Settings
from leakgauge.inversion.search.simulate import LocalSteps
from leakgauge.inversion.search.targets import Reconstruction
from leakgauge.results.statistics import mean_estimate, paired_difference, share_estimate
from leakgauge.training.client import Client, Sent, send

__all__ = [
    "PRESETS",
    "Client",
    "Cosine",
    "Epoch",
    "EpochPlan",
    "LabelGuess",
    "LayerWeighted",
    "LayerWeights",
    "LocalSteps",
    "Lpips",
    "Objective",
    "Pixels",
    "Reconstruction",
    "Recovered",
    "Sent",
    "Settings",
    "SquaredError",
    "adapted",
    "adapted_settings",
    "adapts",
    "align_to_truth",
    "arrange",
    "default_lpips",
    "differentiable_gradients",
    "infer_labels",
    "joint_reconstruct",
    "label_accuracy",
    "match_epochs",
    "matching_accuracy",
    "mean_estimate",
    "paired_difference",
    "preset",
    "psnr",
    "reconstruct",
    "recover_first_layer",
    "refine_assignment",
    "send",
    "share_estimate",
    "share_recovered",
    "ssim",
]
