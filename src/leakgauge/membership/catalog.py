"""The attacks on membership by the names that users type. Importing it loads no torch."""

import copy
from typing import TYPE_CHECKING

from leakgauge.core.checks import InputError, require
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.membership.adversaries.adversary import MembershipAttack

_PACKAGE = "leakgauge.membership.adversaries"

MEMBERS, SHADOW, NOTHING = "some members", "records of the same kind", "nothing"
"""What an attacker knows before it judges."""

_KNOWN = {
    "gradients": ("learned:Gradients", MEMBERS, "gradients of the loss"),
    "white-box": ("learned:WhiteBox", MEMBERS, "outputs, label, loss, hidden outputs, gradients"),
    "label-loss": ("learned:LabelLoss", MEMBERS, "outputs, label, loss"),
    "label": ("learned:Label", MEMBERS, "outputs, label"),
    "probabilities": ("learned:Probabilities", MEMBERS, "outputs"),
    "hidden-outputs": ("learned:HiddenOutputs", MEMBERS, "outputs, hidden outputs"),
    "loss": ("thresholds:Loss", MEMBERS, "loss"),
    "confidence": ("thresholds:Confidence", MEMBERS, "outputs"),
    "gradient-norm": ("thresholds:GradientNorm", MEMBERS, "norm of the gradient"),
    "rmia": ("thresholds:RMIA", SHADOW, "loss, also at models of its own"),
    "shadow": ("learned:ShadowModel", SHADOW, "outputs, label, loss"),
    "spectral": ("unsupervised:Spectral", NOTHING, "outputs, label, loss, gradients"),
    "kmeans": ("unsupervised:NormClusters", NOTHING, "norm of the gradient"),
}

ADVERSARIES = {name: f"{_PACKAGE}.{where}" for name, (where, _, _) in _KNOWN.items()}
"""Where each attack is; it is imported when it is used."""

ABOUT = {name: about for name, (_, *about) in _KNOWN.items()}
"""What the attacker of each attack knows, and what it sees of a record."""

DEFAULT = tuple(name for name in ADVERSARIES if name != "hidden-outputs")
"""Attacks that are played where none is named: the paper's, and what they must be compared with."""

SEPARATE = "gradients:joint=0"
"""The attack on each snapshot alone, whose log odds are summed; played beside the joint one."""

HELP = (
    f"{', '.join(ADVERSARIES)} (default: all but hidden-outputs), with settings as "
    "gradients:layers=2; or your own, MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

REGISTRY = Registry("adversary", ADVERSARIES, "leakgauge.membership_adversaries")

NOTATION = REGISTRY.notation()
"""What users may write for an attack."""


def parse_attack(text: str) -> "MembershipAttack":
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
        "and needs, as leakgauge.membership.MembershipAttack has",
    )
    try:
        object.__setattr__(attack, "name", choice.text)  # most are frozen
    except AttributeError as error:
        raise InputError(
            f"adversary {text!r} does not let its name be set; make 'name' a plain attribute of "
            "its class"
        ) from error
    made: MembershipAttack = attack
    return made
