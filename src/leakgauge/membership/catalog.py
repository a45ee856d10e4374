"""The membership attacks by the names that users type; imports no torch."""

import copy
from typing import TYPE_CHECKING, cast

from leakgauge.core.checks import InputError, require
from leakgauge.core.registry import Registry

if TYPE_CHECKING:
    from leakgauge.membership.adversaries.adversary import MembershipAttack

_PACKAGE = "leakgauge.membership.adversaries"

MEMBERS, SHADOW, NOTHING = "some members", "records of the same kind", "nothing"
"""Knowledge of an attacker."""

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
    "rmia": ("thresholds:RMIA", SHADOW, "loss, also at its own models"),
    "shadow": ("learned:ShadowModel", SHADOW, "outputs, label, loss"),
    "spectral": ("unsupervised:Spectral", NOTHING, "outputs, label, loss, gradients"),
    "kmeans": ("unsupervised:NormClusters", NOTHING, "norm of the gradient"),
}

ADVERSARIES = {name: f"{_PACKAGE}.{where}" for name, (where, _, _) in _KNOWN.items()}
"""Address of each attack, imported at first use."""

ABOUT = {name: about for name, (_, *about) in _KNOWN.items()}
"""Knowledge of each attack's attacker, and what it observes of a record."""


def knowledge_of(adversary: str) -> str:
    """Return the knowledge of an attack's attacker; empty for an attack of the user's code.

    >>> knowledge_of("rmia:gamma=2"), knowledge_of("my_module:Attack")
    ('records of the same kind', '')
    """
    return ABOUT.get(adversary.partition(":")[0], ("",))[0]


DEFAULT = tuple(name for name in ADVERSARIES if name != "hidden-outputs")
"""Default attacks: the paper's, and those to compare them with."""

SEPARATE = "gradients:joint=0"
"""The attack on each snapshot alone, with summed log odds; run in addition to the joint one."""

HELP = (
    f"{', '.join(ADVERSARIES)} (default: all but hidden-outputs), with settings as "
    "gradients:layers=2; or your own, MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

REGISTRY = Registry("adversary", ADVERSARIES, "leakgauge.membership_adversaries")

NOTATION = REGISTRY.notation()
"""Notation of an attack for users."""


def parse_attack(text: str) -> "MembershipAttack":
    """Return the attack of ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]``.

    Args:
        text: as ``gradients:layers=2`` or ``my_module:MyAttack``.

    Returns:
        The attack. Its ``name`` is ``text``, so that measurements of two settings stay apart.

    Raises:
        InputError: a name, key or value is unknown, or the named object is not an attack.

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
    return cast("MembershipAttack", attack)
