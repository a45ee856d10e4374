"""The attacks and defenses that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.membership.adversaries.adversary import Attack
from leakgauge.membership.catalog import parse_attack
from leakgauge.training.participant import refuse_learned

if TYPE_CHECKING:
    from leakgauge.membership.spec import MembershipSpec


def attacks_of(spec: MembershipSpec) -> list[Attack]:
    """Return the attacks, in the order of the settings.

    Raises:
        InputError: one is unknown or repeated.
    """
    attacks = [parse_attack(text) for text in spec.adversaries]
    names = [one.name for one in attacks]
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    return attacks


def defenses_of(spec: MembershipSpec) -> list[Defense]:
    """Return the defenses, each once.

    Raises:
        InputError: none is named, one is unknown, or it is about the secret of a batch.
    """
    require(len(spec.defense) > 0, "--defense is empty; name one, or none for no defense")
    defenses = {}
    for text in spec.defense:
        one = parse_defense(text, batch_size=spec.batch_size)
        refuse_learned(one)
        defenses[one.name] = one
    return list(defenses.values())
