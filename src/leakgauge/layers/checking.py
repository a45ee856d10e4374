"""Refuses settings that are wrong for any data."""

from leakgauge.core.checks import require
from leakgauge.defenses import Defense, parse_defense
from leakgauge.inference.words import UNIFORM
from leakgauge.layers.catalog import HIDE, MEMBERS, VOTES, parse_attack
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs.spec import check_bounds
from leakgauge.training.catalog import parse_optimizer


def check(spec: LayersSpec) -> None:
    """Refuse settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings contradict others.
    """
    check_bounds(spec)
    require(spec.under < 1, f"under is {spec.under:g}; expected an advantage between 0 and 1")
    require(
        len(set(spec.layers)) == len(spec.layers),
        f"layers names one twice: {', '.join(spec.layers)}",
    )
    require(
        spec.calibration != VOTES or spec.prior == UNIFORM,
        f"calibration {VOTES} knows no prior; set prior={UNIFORM}",
    )
    require(
        not spec.half or spec.batch_size >= 2,
        "half of a batch of 1 record is none; raise --batch-size to 2",
    )
    parse_optimizer(spec.optimizer, lr=spec.lr)
    _check_attacks(spec)
    if spec.protect != HIDE:
        defense_of("first", spec)
        require(
            spec.local_steps == 1,
            f"protect is {spec.protect!r}, which is about gradients; with local_steps above 1 "
            f"set protect={HIDE}",
        )


def _check_attacks(spec: LayersSpec) -> None:
    """Refuse attacks that are unknown, repeated, or cannot see what is sent."""
    names = [parse_attack(text, batches=spec.shadow_batches).name for text in spec.adversaries]
    require(len(set(names)) == len(names), f"--adversary repeats a name: {', '.join(names)}")
    for name in names:
        require(
            spec.snapshots == 1 or name.partition(":")[0] in MEMBERS,
            f"the adversary {name!r} learns from gradients of one global model; with snapshots "
            f"above 1 choose from {', '.join(MEMBERS)}",
        )
        require(
            spec.local_steps == 1 or name.partition(":")[0] in MEMBERS,
            f"the adversary {name!r} learns from gradients of single steps; with local_steps above "
            f"1 choose from {', '.join(MEMBERS)}",
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
