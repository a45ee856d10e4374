"""Defenses that are learned once in each round, and kept for its further steps."""

from collections.abc import Callable
from typing import Any

import torch

from leakgauge.core.types import Params
from leakgauge.defenses import Defense

BYTES_PER_PARAMETER = 300
"""Memory of a learned defense for each parameter of the model: 32 hidden units in float64."""


class LearnedDefenses:
    """The learned defense of each round, in this process.

    Training, the attack on a round and the adversaries of all rounds need the same defense. Rounds
    are kept as long as they fit into ``max_bytes``; the others are learned anew, with the same
    result. Another process starts with none.

    Args:
        max_bytes: bound on what is kept.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[int, tuple[Params, Defense]] = {}

    def of_round(self, number: int, params: Params, learn: Callable[[], Defense]) -> Defense:
        """The defense of a round at ``params``; ``learn`` is called where none is kept."""
        if number in self._kept and _equal(self._kept[number][0], params):
            return self._kept[number][1]
        defense = learn()
        size = BYTES_PER_PARAMETER * sum(leaf.numel() for leaf in params.values())
        if size * (len(self._kept) + 1) <= self._max_bytes:
            self._kept[number] = dict(params), defense
        return defense

    def __getstate__(self) -> dict[str, Any]:
        return {"_max_bytes": self._max_bytes, "_kept": {}}


def _equal(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(leaf, other[name]) for name, leaf in one.items()
    )
