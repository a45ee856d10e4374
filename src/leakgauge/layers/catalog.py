"""Attacks on layers by the names that users type, and other words; imports no torch."""

import copy
import re
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from leakgauge.core.checks import require
from leakgauge.core.registry import Registry
from leakgauge.inference.catalog import ADVERSARIES, PROPERTY, games_of, parse_adversary

if TYPE_CHECKING:
    from leakgauge.inference.adversaries.adversary import Attack

QUESTION = "layers"

HIDE = "hide"
"""Advice: hide layers from the attacker, in an enclave or by encryption."""

PLATT, VOTES = "platt", "softmax-votes"
CALIBRATIONS = (PLATT, VOTES)

ALL = "all"
"""Name of what an attack on all layers sees."""

FAMILY = ("forest", "logistic", "network")
"""The predictive family: attacks among which held-out data choose."""


_PACKAGE = "leakgauge.layers.family"

MEMBERS = {
    "forest": f"{_PACKAGE}:VotingForest",
    "logistic": f"{_PACKAGE}:LinearOnComponents",
    "network": f"{_PACKAGE}:NetworkOnComponents",
}
"""Address of each attack, imported when it is used."""

WRAPPED = ("energies", "discriminant", "pca-forest")
"""Adversaries of inference that also run here, each on one layer at a time."""

REGISTRY = Registry(
    "adversary",
    {**MEMBERS, **{name: ADVERSARIES[name] for name in WRAPPED}},
    "leakgauge.adversaries",
)

HELP = (
    f"{', '.join(FAMILY)} (default: all; held-out data choose the best for each "
    f"layer), {', '.join(WRAPPED)}, with settings as forest:trees=100; or your own, "
    "MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

BATCHES = "batches"
"""Setting shared by all attacks on layers, as each batch is observed once for all of them."""

NOTATION = REGISTRY.notation(supplied=(BATCHES,))
"""Notation of an adversary."""


def parse_attack(text: str, *, batches: int) -> "Attack":
    """Return the attack named by ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]``.

    Args:
        text: text that users type.
        batches: number of shadow batches to learn from, for attacks with such a setting.

    Raises:
        InputError: the name, a key or a value is unknown, or the name is not an attack.

    >>> one = parse_attack("forest:trees=10", batches=300)
    >>> one.name, one.batches
    ('forest:trees=10', 300)
    """
    require(
        re.search(rf"[:,]\s*{BATCHES}\s*=", text) is None,
        f"the adversary {text!r} names its batches, but all attacks on layers learn from the same "
        "ones; set shadow_batches",
    )
    if text.partition(":")[0] not in MEMBERS:
        attack = parse_adversary(text)
        require(
            PROPERTY in games_of(attack),
            f"the adversary {text!r} does not infer a property; choose one of "
            f"{', '.join((*FAMILY, *WRAPPED))}",
        )
        return _named(attack, attack.name, batches)
    choice = REGISTRY.read(text, supplied=(BATCHES,))
    return _named(choice.call(), choice.text, batches)


def _named(attack: Any, name: str, batches: int) -> "Attack":
    made = copy.copy(attack)
    object.__setattr__(made, "name", name)
    if is_dataclass(made) and BATCHES in {one.name for one in fields(made)}:
        object.__setattr__(made, BATCHES, batches)
    one: Attack = made
    return one
