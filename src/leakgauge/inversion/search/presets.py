"""The attacks by name: settings of one engine."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from leakgauge.core.checks import nearest, require
from leakgauge.inversion.search.layer_weights import LayerWeights
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

PRESETS: Mapping[str, Settings] = MappingProxyType(
    {
        "dlg": _DLG,
        "dlg-adam": replace(_DLG, optimizer="adam", lr=0.1, iterations=4800),
        "idlg": replace(_DLG, joint_labels=False),
        "inverting-gradients": _INVERTING,
        "agic": replace(
            _INVERTING,
            objective=LayerWeights(),
            total_variation=0.01,
            prior_relative=True,
            prior_per_record=True,
        ),
        "leakgauge": replace(
            _INVERTING,
            objective=LayerWeights(),
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
which ``idlg`` infers first; ``dlg-adam`` is ``dlg`` with Adam; ``inverting-gradients`` is that of
Geiping et al. 2020; ``agic`` (Xu et al. 2022) weights the layers in its objective; ``leakgauge``
is our own: AGIC with larger steps, a cosine schedule and a total variation that is stronger at
first.

The paper's total variation for AGIC was not at hand. Its weight here, like ours, was chosen on
training images of CIFAR-10, 16 for the slim net and 3 for ResNet20-4 drawn by ``he``, and is
relative: the same number serves both. It grows with the batch, which gained 4.2 dB in batches of 4
on the 16 images and the slim net. To see the effect of the layer weights alone, give both
attacks one weight: ``inverting-gradients:total_variation=0.001``,
``agic:total_variation=0.001,prior_relative=0,prior_per_record=0``. Drawn by ``he-fan-out``, a
ResNet20-4 is also better inverted with that one, ``agic`` by 2 dB on 4 training images.

``inverting-gradients`` and ``agic`` have the step size of Geiping et al., 0.1. By ``agic:lr=0.3``,
``agic`` gains 0.5 dB on 16 training images and the slim net, and 1.6 dB on that ResNet20-4; there
the factor for layers before a ReLU, ``relu=2``, gained 1.2 dB more in the mean of 4 training
images, all of it on one of them."""


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
