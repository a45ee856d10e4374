"""Refuses settings whose texts name nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leakgauge.defenses import parse_defense
from leakgauge.training.catalog import parse_optimizer

if TYPE_CHECKING:
    from leakgauge.inversion import Settings
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


def attack_of(spec: TimelineSpec) -> Settings:
    """Return the settings of the attack on images.

    Raises:
        InputError: the name, a key or a value is not known.
    """
    from leakgauge.inversion.search.parse import parse_attack

    settings = parse_attack(spec.attack)
    assert settings is not None
    return replace(settings, iterations=spec.attack_iterations)
