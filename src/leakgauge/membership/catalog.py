"""The attacks on membership by the names that users type. Importing it loads no torch."""

import copy
from typing import TYPE_CHECKING

from leakgauge.core.checks import InputError, require
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.membership.adversaries.adversary import Attack

_PACKAGE = "leakgauge.membership.adversaries"

ADVERSARIES = {
    "gradients": f"{_PACKAGE}.learned:Gradients",
    "white-box": f"{_PACKAGE}.learned:WhiteBox",
    "label-loss": f"{_PACKAGE}.learned:LabelLoss",
    "label": f"{_PACKAGE}.learned:Label",
    "probabilities": f"{_PACKAGE}.learned:Probabilities",
    "hidden-outputs": f"{_PACKAGE}.learned:HiddenOutputs",
    "loss": f"{_PACKAGE}.thresholds:Loss",
    "confidence": f"{_PACKAGE}.thresholds:Confidence",
    "gradient-norm": f"{_PACKAGE}.thresholds:GradientNorm",
    "rmia": f"{_PACKAGE}.references:RMIA",
    "shadow": f"{_PACKAGE}.shadow:ShadowModel",
    "spectral": f"{_PACKAGE}.unsupervised:Spectral",
    "kmeans": f"{_PACKAGE}.unsupervised:NormClusters",
}
"""Where each attack is; it is imported when it is used."""

DEFAULT = tuple(name for name in ADVERSARIES if name != "hidden-outputs")
"""Attacks that are played where none is named: the paper's, and what they must be compared with."""

HELP = (
    f"{', '.join(ADVERSARIES)} (default: all but hidden-outputs), with settings as "
    "gradients:layers=2; or your own, MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

REGISTRY = Registry("adversary", ADVERSARIES, "leakgauge.membership_adversaries")

NOTATION = REGISTRY.notation()
"""What users may write for an attack."""


def parse_attack(text: str) -> "Attack":
    """Return the attack that ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]`` names.

    Args:
        text: as ``gradients:layers=2`` or ``my_module:MyAttack``.

    Returns:
        The attack. Its ``name`` is ``text``, so that measurements of two settings stay apart.

    Raises:
        InputError: the name, a key or a value is not known, or what it names is no attack.

    >>> parse_attack("gradients:layers=2").needs.layers
    2
    """
    choice = REGISTRY.read(text)
    attack = copy.copy(choice.call())
    require(
        callable(getattr(attack, "fit", None)) and hasattr(attack, "needs"),
        f"adversary {text!r} made {type(attack).__name__}; expected an attack with a method fit "
        "and needs, as leakgauge.membership.Attack has",
    )
    try:
        object.__setattr__(attack, "name", choice.text)  # most are frozen
    except AttributeError as error:
        raise InputError(
            f"adversary {text!r} does not let its name be set; make 'name' a plain attribute of "
            "its class"
        ) from error
    made: Attack = attack
    return made
