"""The attacks by name: settings of one engine."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from leakgauge.core.checks import nearest, require
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.settings import Settings

_DLG = Settings(
    objective=SquaredError(),
    optimizer="lbfgs",
    lr=1.0,
    iterations=300,
    schedule="constant",
    joint_labels=True,
)

# As the command line of Geiping et al.'s program has it by default, for CIFAR-10; the iterations
# are those of breaching's configuration. The program's class has a total variation of 0.1.
_INVERTING = Settings(
    objective=Cosine(),
    optimizer="signed-adam",
    lr=0.1,
    iterations=24_000,
    schedule="step-down",
    total_variation=1e-4,
    boxed=True,
)


def agic(*, trained: bool = False, large: bool = False) -> Settings:
    """Return AGIC's settings for a network of this phase and size.

    10,000 iterations of Adam with rate 0.1, and layer weights up to 50, or 2 for a trained network.
    The total variation weighs 1e-4, and 1e-2 for a trained network: the paper's values for
    ResNet20-4 on 32 x 32 images, taken here for every network but ``large`` ones; these have the
    values for ResNet50 on ImageNet, 1e-3 and 1e-1.

    Adam works on the values of the slope, at a constant rate and without bounds, since the paper
    names nothing else. ``agic:optimizer=signed-adam,schedule=step-down,boxed=1`` adds the signs,
    the falling rate and the box of Geiping et al., whose method the paper's baseline is; on images
    of CIFAR-10 and the slim network, both readings came out alike.

    Args:
        trained: whether the attacked network is trained; an attacker knows its phase.
        large: whether the network is a ResNet50, or images are as large as ImageNet's.

    References:
        Xu et al., AGIC, SRDS 2022, section V-A.

    >>> agic(trained=True).total_variation, agic(trained=True).objective.beta
    (0.01, 2.0)
    """
    smooth = (1e-1 if trained else 1e-3) if large else (1e-2 if trained else 1e-4)
    return Settings(
        objective=LayerWeights(beta=2.0 if trained else 50.0),
        optimizer="adam",
        lr=0.1,
        iterations=10_000,
        schedule="constant",
        total_variation=smooth,
    )


PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "dlg": _DLG,
        "dlg-adam": replace(_DLG, optimizer="adam", lr=0.1, iterations=10_000),
        "idlg": replace(_DLG, joint_labels=False),
        "inverting-gradients": _INVERTING,
        "agic": agic(),
        "leakgauge": replace(
            _INVERTING,
            objective=DepthWeights(),
            lr=0.2,
            schedule="cosine",
            total_variation=0.008,
            prior_relative=True,
            prior_per_record=True,
            prior_first=30.0,
            rescale=True,
        ),
    }
)
"""Attacks by name. ``dlg`` (Zhu et al. 2019) and ``idlg`` (Zhao et al. 2020) differ in the labels,
which ``idlg`` infers first; ``dlg-adam`` is ``dlg`` with Adam and the iterations of AGIC's paper,
where it is a baseline; ``inverting-gradients`` is that of Geiping et al. 2020; ``agic`` (Xu et al.
2022) weights the layers, here as for an untrained network and small images (see ``agic``).

``leakgauge`` is ours: weights over all layers, signs, larger steps, a cosine schedule and a total
variation that is relative to the objective, and fades no further than it. Its numbers were chosen
on training images of CIFAR-10, 16 for the slim network and 3 for a ResNet20-4 drawn by ``he``; how
the total variation fades on 16 each for slim and ResNet20, and on 4 for ResNet20-4."""


def presets_for(*, trained: bool, large: bool) -> Mapping[str, Settings]:
    """Return ``PRESETS`` with ``agic`` for a network of this phase and size; arguments as there."""
    return MappingProxyType({**PRESETS, "agic": agic(trained=trained, large=large)})


def preset(name: str, **changed: Any) -> Settings:
    """The settings of the attack called ``name``, some of them changed.

    Args:
        name: one of ``PRESETS``.
        changed: fields of ``Settings``.

    Raises:
        InputError: the name or a setting is not known, or a value is out of its range.

    >>> preset("agic", iterations=500).iterations
    500
    >>> preset("agic", restart=3)
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: an attack has no setting 'restart'; did you mean 'restarts'?
    """
    require(name in PRESETS, f"attack {name!r} is not known{nearest(name, PRESETS)}")
    known = [field.name for field in fields(Settings)]
    for setting in changed:
        require(setting in known, f"an attack has no setting {setting!r}{nearest(setting, known)}")
    return replace(PRESETS[name], **changed)
