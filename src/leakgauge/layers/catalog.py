"""The attacks on layers by the names that users type. Importing it loads no torch."""

import copy
from typing import TYPE_CHECKING

from leakgauge.core.checks import require
from leakgauge.core.registry import Registry
from leakgauge.inference.catalog import ADVERSARIES, PROPERTY, games_of, parse_adversary
from leakgauge.layers.words import FAMILY

if TYPE_CHECKING:
    from leakgauge.inference.adversaries.adversary import Attack

_PACKAGE = "leakgauge.layers.family"

MEMBERS = {
    "forest": f"{_PACKAGE}:VotingForest",
    "logistic": f"{_PACKAGE}:LinearOnComponents",
    "network": f"{_PACKAGE}:NetworkOnComponents",
}
"""Where each attack is; it is imported when it is used."""

WRAPPED = ("energies", "discriminant", "pca-forest")
"""Adversaries of inference that play here too, each on one layer at a time."""

REGISTRY = Registry(
    "adversary",
    {**MEMBERS, **{name: ADVERSARIES[name] for name in WRAPPED}},
    "leakgauge.adversaries",
)

HELP = (
    f"{', '.join(FAMILY)} (default: all of them, of which held-out data take the best of each "
    f"layer), {', '.join(WRAPPED)}, with settings as forest:trees=100; or your own, "
    "MODULE:NAME[:key=value,...]"
)
"""For the help of the command line."""

NOTATION = REGISTRY.notation()
"""What users may write for an adversary."""


def parse_attack(text: str) -> "Attack":
    """Return the attack that ``NAME[:key=value,...]`` or ``MODULE:NAME[:key=value,...]`` names.

    Raises:
        InputError: the name, a key or a value is not known, or what it names is no attack.

    >>> parse_attack("forest:trees=10").name
    'forest:trees=10'
    """
    if text.partition(":")[0] not in MEMBERS:
        attack = parse_adversary(text)
        require(
            PROPERTY in games_of(attack),
            f"the adversary {text!r} does not infer a property; choose one of "
            f"{', '.join((*FAMILY, *WRAPPED))}",
        )
        return attack  # type: ignore[return-value]
    choice = REGISTRY.read(text)
    made = copy.copy(choice.call())
    object.__setattr__(made, "name", choice.text)
    one: Attack = made
    return one
