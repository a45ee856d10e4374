"""Refuses settings that are wrong for any data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.layers.catalog import HIDE, MEMBERS, parse_attack

if TYPE_CHECKING:
    from leakgauge.layers.spec import LayersSpec


def check_attacks(spec: LayersSpec) -> None:
    """Refuse attacks that are unknown, repeated, or cannot see what is sent."""
    names = [parse_attack(text, batches=spec.shadow_batches).name for text in spec.adversaries]
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    for name in names:
        require(
            spec.local_steps == 1 or name.partition(":")[0] in MEMBERS,
            f"the adversary {name!r} learns from gradients of single steps; with local_steps above "
            f"1 choose from {', '.join(MEMBERS)}",
        )


def check_protection(spec: LayersSpec) -> None:
    """Refuse a defense that does not work on single layers."""
    if spec.protect != HIDE:
        defense_of("first", spec)
        require(
            spec.local_steps == 1,
            f"protect is {spec.protect!r}, which is about gradients; with local_steps above 1 "
            f"set protect={HIDE}",
        )


def defense_of(layers: str, spec: LayersSpec) -> Defense:
    """Return the advised defense, restricted to some layers.

    Args:
        layers: value of the defense's setting ``layers``.
        spec: settings that name the defense.
    """
    require(
        "layers=" not in spec.protect,
        f"protect is {spec.protect!r}; leave layers= out: the advice finds the layers",
    )
    joint = "," if ":" in spec.protect else ":"
    return parse_defense(f"{spec.protect}{joint}layers={layers}", batch_size=spec.batch_size)
