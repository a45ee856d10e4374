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
    _NAMES = {
        "catalog": "parse_defense",
        "clip": "Clip ClipNorm",
        "defense": "Defense DefenseSettings Learn NotLearned TaskTransform none",
        "dpsgd": "DPSGD noise_multiplier",
        "layers": "Layers OnLayers on_layers",
        "noise": "GaussianNoise Noise",
        "perturb": "LearnPerturb PGD Perturb PerturbTransform train_network",
        "prune": "Prune PruneTransform Pruned",
        "quantise": "Quantise StochasticQuantise",
        "sign": "Sign SignTransform SoftSigns",
        "transform": "Chain Identity Objective Transform",
        "vib": "Bottleneck VIB deployed with_noise",
    }
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {name: f"{__name__}.{part}" for part, names in _NAMES.items() for name in names.split()},
    )
