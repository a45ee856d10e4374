"""Checkpoints within one long computation: a kill costs a minute of it, not the whole."""

import time
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from leakgauge.runs.work import WorkFolder

SECONDS_BETWEEN = 60.0
"""Between two checkpoints of a computation, at least."""


class Checkpoint:
    """The state of one long computation: tensors and plain values, in lists and mappings.

    A computation keeps it when that is ``due``, and at its end if more follows. Its parts have
    their names and share the minute.

    Args:
        folder: where states are kept; None keeps none.
        name: name of the computation in the folder.
    """

    def __init__(self, folder: WorkFolder | None, name: str = "") -> None:
        self._folder, self._name, self._after = folder, name, ""
        self._clock = [time.monotonic()]

    def part(self, name: str, *, after: str = "") -> "Checkpoint":
        """Return the checkpoint of a part.

        Args:
            name: name of the part within this computation.
            after: digest of what the part builds on; a state that built on something else is not
                read back.
        """
        one = Checkpoint(self._folder, f"{self._name}/{name}")
        one._clock, one._after = self._clock, " ".join(filter(None, (self._after, after)))
        return one

    @property
    def due(self) -> bool:
        """Whether a minute passed since a state was kept."""
        return self._folder is not None and time.monotonic() - self._clock[0] >= SECONDS_BETWEEN

    def keep(self, state: Any) -> None:
        """Keep a state in the place of the one before."""
        if self._folder is not None:
            tensors: dict[str, Tensor] = {}
            about = _plain(state, tensors)
            self._folder.keep_state(self._name, tensors, about, after=self._after)
            self._clock[0] = time.monotonic()

    def read(self) -> Any:
        """Return the kept state, or None; its tensors are on the CPU, and tuples became lists."""
        kept = None if self._folder is None else self._folder.state(self._name, after=self._after)
        return None if kept is None else _whole(kept[1], kept[0])


def restore_optimizer(optimizer: Optimizer, state: Any) -> None:
    """Give an optimizer the ``state_dict()["state"]`` of one of equal settings."""
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _plain(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value for JSON; its tensors go to ``tensors``."""
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value.clone()  # stored tensors may not share memory
        return {"tensor": str(len(tensors) - 1)}
    if isinstance(value, dict):  # as pairs, since names may be numbers
        return {"pairs": [[key, _plain(one, tensors)] for key, one in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(one, tensors) for one in value]
    return value


def _whole(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_whole(one, tensors) for one in value]
    if isinstance(value, dict) and "tensor" in value:
        return tensors[value["tensor"]]
    if isinstance(value, dict):
        return {key: _whole(one, tensors) for key, one in value["pairs"]}
    return value
