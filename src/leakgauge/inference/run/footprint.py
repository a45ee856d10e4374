"""The memory that the adversaries of a stage need, checked before any training."""

from typing import Any

from leakgauge.core.memory import BASE, allowed, require_memory
from leakgauge.gradients import params_of
from leakgauge.inference.run.stage import GameStage

FEWEST = 200
"""Minimum number of shadow batches that the message suggests."""

BYTES_PER_FEATURE = 4


def footprint(stage: GameStage) -> int:
    """Return the peak bytes of a round in addition to the process itself."""
    return stage.max_bytes + max((_kept(stage, one) for one in stage.attacks), default=0)


def check_footprint(stage: GameStage) -> None:
    """Refuse an adversary that keeps more features than fit into memory.

    Gradients are processed in chunks. The features of all shadow batches stay in memory, since a
    forest or a regression is fitted on all of them.

    Raises:
        InputError: an adversary needs more memory than is allowed.
    """
    for attack in stage.attacks:
        kept = _kept(stage, attack)
        if kept > 0:
            what = f"keeps the features of {_batches(attack):,} shadow batches,"
            advice = _instead(stage, attack, kept)
            require_memory(stage.max_bytes + kept, f"{attack.name}, which {what}", advice)


def _instead(stage: GameStage, attack: Any, kept: int) -> str:
    left = allowed() - BASE - stage.max_bytes
    batches = int(_batches(attack) * left / kept) // 100 * 100
    fewer = f"{attack.name}:batches={batches}, " if batches >= FEWEST else ""
    return f"use --adversary {fewer}another --adversary or a smaller network (--hidden)"


def _kept(stage: GameStage, attack: Any) -> int:
    """Return the bytes of the features that an attack keeps, possibly 0."""
    view = getattr(attack, "kept", None)
    if view is None:
        return 0
    params = params_of(stage.task.model)
    one = {name: leaf.new_zeros(1, *leaf.shape) for name, leaf in params.items()}
    return int(_batches(attack) * view(one).shape[1] * BYTES_PER_FEATURE)


def _batches(attack: Any) -> int:
    return int(attack.batches)
