"""Refuses settings whose texts name nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakgauge.defenses import parse_defense
from leakgauge.training.catalog import parse_optimizer

if TYPE_CHECKING:
    from leakgauge.inversion import Method
    from leakgauge.tokens.spec import TimelineSpec


def check_names(spec: TimelineSpec) -> None:
    """Refuse an optimizer, a defense or an attack that does not exist.

    Raises:
        InputError: one is unknown, or one of its settings is.
    """
    parse_optimizer(spec.optimizer, lr=spec.lr)
    for text in spec.defenses:
        parse_defense(text, batch_size=spec.batch_size)
    attack_of(spec)


def attack_of(spec: TimelineSpec) -> Method:
    """Return the attack on images.

    Raises:
        InputError: the name, a key or a value is not known, or the attack is not for images.
    """
    from leakgauge.inversion.methods import method_of, refuse_tables_only

    refuse_tables_only(spec.attack, "tables; choose")
    return method_of(spec.attack, iterations=spec.attack_iterations)
