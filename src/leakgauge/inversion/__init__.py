"""Can the records be rebuilt? Gradient inversion, from DLG to AGIC."""

from leakgauge.inversion.adaptive import adapted, adapted_settings, adapts
from leakgauge.inversion.client import Client, Sent, send
from leakgauge.inversion.engine import reconstruct
from leakgauge.inversion.epochs import Epoch, joint_reconstruct
from leakgauge.inversion.exact import Recovered, recover_first_layer, share_recovered
from leakgauge.inversion.fast import matching_gradients
from leakgauge.inversion.labels import LabelGuess, infer_labels, label_accuracy
from leakgauge.inversion.layerweights import LayerWeights
from leakgauge.inversion.lpips import Lpips, usual_lpips
from leakgauge.inversion.matching import EpochPlan, arrange, match_epochs, matching_accuracy
from leakgauge.inversion.objective import Cosine, LayerWeighted, Objective, SquaredError
from leakgauge.inversion.pixels import Pixels
from leakgauge.inversion.presets import PRESETS, preset
from leakgauge.inversion.quality import (
    match_to_truth,
    mean_estimate,
    paired_difference,
    psnr,
    share_estimate,
    ssim,
)
from leakgauge.inversion.search import Reconstruction
from leakgauge.inversion.settings import Settings
from leakgauge.inversion.settling import settle_plan
from leakgauge.inversion.simulate import LocalSteps

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
    "arrange",
    "infer_labels",
    "joint_reconstruct",
    "label_accuracy",
    "match_epochs",
    "match_to_truth",
    "matching_accuracy",
    "matching_gradients",
    "mean_estimate",
    "paired_difference",
    "preset",
    "psnr",
    "reconstruct",
    "recover_first_layer",
    "send",
    "settle_plan",
    "share_estimate",
    "share_recovered",
    "ssim",
    "usual_lpips",
]
