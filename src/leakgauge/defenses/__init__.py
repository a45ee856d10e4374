"""Defenses that a client applies to its gradients before it sends them."""

from typing import TYPE_CHECKING

from leakgauge.core.lazy import attach

if TYPE_CHECKING:
    from leakgauge.defenses.catalog import parse_defense as parse_defense
    from leakgauge.defenses.clip import Clip as Clip
    from leakgauge.defenses.clip import ClipNorm as ClipNorm
    from leakgauge.defenses.defense import Defense as Defense
    from leakgauge.defenses.defense import DefenseSettings as DefenseSettings
    from leakgauge.defenses.defense import Learn as Learn
    from leakgauge.defenses.defense import NotLearned as NotLearned
    from leakgauge.defenses.defense import TaskTransform as TaskTransform
    from leakgauge.defenses.defense import none as none
    from leakgauge.defenses.dpsgd import DPSGD as DPSGD
    from leakgauge.defenses.dpsgd import noise_multiplier as noise_multiplier
    from leakgauge.defenses.layers import Layers as Layers
    from leakgauge.defenses.layers import OnLayers as OnLayers
    from leakgauge.defenses.layers import on_layers as on_layers
    from leakgauge.defenses.noise import GaussianNoise as GaussianNoise
    from leakgauge.defenses.noise import Noise as Noise
    from leakgauge.defenses.perturb import PGD as PGD
    from leakgauge.defenses.perturb import LearnPerturb as LearnPerturb
    from leakgauge.defenses.perturb import Perturb as Perturb
    from leakgauge.defenses.perturb import PerturbTransform as PerturbTransform
    from leakgauge.defenses.perturb import train_network as train_network
    from leakgauge.defenses.prune import Prune as Prune
    from leakgauge.defenses.prune import Pruned as Pruned
    from leakgauge.defenses.prune import PruneTransform as PruneTransform
    from leakgauge.defenses.quantise import Quantise as Quantise
    from leakgauge.defenses.quantise import StochasticQuantise as StochasticQuantise
    from leakgauge.defenses.sign import Sign as Sign
    from leakgauge.defenses.sign import SignTransform as SignTransform
    from leakgauge.defenses.sign import SoftSigns as SoftSigns
    from leakgauge.defenses.transform import Chain as Chain
    from leakgauge.defenses.transform import Identity as Identity
    from leakgauge.defenses.transform import Objective as Objective
    from leakgauge.defenses.transform import Transform as Transform
    from leakgauge.defenses.vib import VIB as VIB
    from leakgauge.defenses.vib import Bottleneck as Bottleneck
    from leakgauge.defenses.vib import deployed as deployed
    from leakgauge.defenses.vib import with_noise as with_noise
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Bottleneck": "leakgauge.defenses.vib",
            "Chain": "leakgauge.defenses.transform",
            "Clip": "leakgauge.defenses.clip",
            "ClipNorm": "leakgauge.defenses.clip",
            "DPSGD": "leakgauge.defenses.dpsgd",
            "Defense": "leakgauge.defenses.defense",
            "DefenseSettings": "leakgauge.defenses.defense",
            "GaussianNoise": "leakgauge.defenses.noise",
            "Identity": "leakgauge.defenses.transform",
            "Layers": "leakgauge.defenses.layers",
            "Learn": "leakgauge.defenses.defense",
            "LearnPerturb": "leakgauge.defenses.perturb",
            "Noise": "leakgauge.defenses.noise",
            "NotLearned": "leakgauge.defenses.defense",
            "Objective": "leakgauge.defenses.transform",
            "OnLayers": "leakgauge.defenses.layers",
            "PGD": "leakgauge.defenses.perturb",
            "Perturb": "leakgauge.defenses.perturb",
            "PerturbTransform": "leakgauge.defenses.perturb",
            "Prune": "leakgauge.defenses.prune",
            "PruneTransform": "leakgauge.defenses.prune",
            "Pruned": "leakgauge.defenses.prune",
            "Quantise": "leakgauge.defenses.quantise",
            "Sign": "leakgauge.defenses.sign",
            "SignTransform": "leakgauge.defenses.sign",
            "SoftSigns": "leakgauge.defenses.sign",
            "StochasticQuantise": "leakgauge.defenses.quantise",
            "TaskTransform": "leakgauge.defenses.defense",
            "Transform": "leakgauge.defenses.transform",
            "VIB": "leakgauge.defenses.vib",
            "deployed": "leakgauge.defenses.vib",
            "noise_multiplier": "leakgauge.defenses.dpsgd",
            "none": "leakgauge.defenses.defense",
            "on_layers": "leakgauge.defenses.layers",
            "parse_defense": "leakgauge.defenses.catalog",
            "train_network": "leakgauge.defenses.perturb",
            "with_noise": "leakgauge.defenses.vib",
        },
    )
