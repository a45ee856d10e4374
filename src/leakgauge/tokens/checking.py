"""Refuses settings that are wrong for any data."""

from itertools import pairwise
from typing import TYPE_CHECKING

from leakgauge.core.checks import require
from leakgauge.defenses import parse_defense
from leakgauge.runs.spec import check_bounds
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import CHECKPOINT, STREAM
from leakgauge.training.catalog import parse_optimizer

if TYPE_CHECKING:
    from leakgauge.inversion.methods import Method


def check(spec: TimelineSpec) -> None:
    """Refuse settings that are wrong for any data.

    Raises:
        InputError: a value is outside its bounds, a name is unknown, or settings contradict others.
    """
    check_bounds(spec)
    steps = ", ".join(map(str, spec.checkpoints))
    require(len(spec.checkpoints) > 0, "checkpoints is empty; name sub-epochs, for example 0,1,5")
    require(
        all(a < b for a, b in pairwise(spec.checkpoints)),
        f"checkpoints are {steps}; expected them ascending, each once, for example 0,1,5",
    )
    for name in ("token", "estimator", "layers"):
        values = getattr(spec, name)
        require(len(set(values)) == len(values), f"{name} names one twice: {', '.join(values)}")
    for name in ("token", "estimator"):
        require(len(getattr(spec, name)) > 0, f"{name} is empty; name one")
    require(
        spec.pairs == CHECKPOINT or spec.checkpoints[-1] > 0,
        f"pairs is {STREAM}, and before the training there are none; name a checkpoint above 0",
    )
    parse_optimizer(spec.optimizer, lr=spec.lr)
    for text in spec.defenses:
        parse_defense(text, batch_size=spec.batch_size)
    attack_of(spec)


def attack_of(spec: TimelineSpec) -> "Method":
    """Return the attack on images.

    Raises:
        InputError: the name, a key or a value is not known, or the attack is not for images.
    """
    from leakgauge.inversion.methods import method_of, refuse_tables_only

    refuse_tables_only(spec.attack, "tables; choose")
    return method_of(spec.attack, iterations=spec.attack_iterations)
