"""What a client does to its gradients before it sends them, against leakage."""

from leakgauge.defenses.defense import (
    Defense,
    clip,
    dpsgd,
    gaussian,
    noise_multiplier,
    none,
    perturb,
    prune,
    quantise,
    sign,
    vib,
)
from leakgauge.defenses.parse import NAMES, parse_defense
from leakgauge.defenses.perturb import PGD, Perturb, train_network
from leakgauge.defenses.plain import ClipNorm, GaussianNoise, Prune, Sign, StochasticQuantise
from leakgauge.defenses.transform import Chain, Identity, Transform
from leakgauge.defenses.vib import Bottleneck, deployed, with_noise

__all__ = [
    "NAMES",
    "PGD",
    "Bottleneck",
    "Chain",
    "ClipNorm",
    "Defense",
    "GaussianNoise",
    "Identity",
    "Perturb",
    "Prune",
    "Sign",
    "StochasticQuantise",
    "Transform",
    "clip",
    "deployed",
    "dpsgd",
    "gaussian",
    "noise_multiplier",
    "none",
    "parse_defense",
    "perturb",
    "prune",
    "quantise",
    "sign",
    "train_network",
    "vib",
    "with_noise",
]
