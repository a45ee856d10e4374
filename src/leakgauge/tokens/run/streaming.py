"""Pairs of a training: each step's batch, and the gradient that moved the model."""

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.types import Params, Task
from leakgauge.gradients.walk import walk
from leakgauge.tokens.features import record_features
from leakgauge.tokens.sketch import Sketches
from leakgauge.tokens.sources import Pairs

MOST = 2000
"""Number of kept pairs, the latest, which bounds the memory and the model's change."""

_FEATURES = "features"


class Stream:
    """Keeps the latest pairs of a training (Algorithm 1 of the paper).

    Args:
        task: the model before the training, in evaluation mode.
        x: records ``[n, ...]``.
        features: name of the module that outputs the data features; None for the default.
        layers: names of the watched layers.
        width: largest number of kept values of each layer's gradient and of the features.
        seed: seed of the sketches.
        every: steps from one kept pair to the next.
    """

    def __init__(
        self,
        task: Task,
        x: Tensor,
        *,
        features: str | None,
        layers: Sequence[str],
        width: int,
        seed: int,
        every: int = 1,
    ) -> None:
        self._features = features
        self._parameters = {
            one.name: one.parameters for one in walk(task, x[:2]) if one.name in layers
        }
        self._sketches = Sketches(width, seed)
        self._rows: deque[dict[str, Tensor]] = deque(maxlen=MOST)
        self._every, self._seen = every, 0

    def __len__(self) -> int:
        return len(self._rows)

    def observe(self, task: Task, params: Params, x: Tensor, gradient: Params) -> None:
        """Keep one pair.

        Args:
            task: the model in evaluation mode, which gives the features.
            params: parameters before the step.
            x: batch ``[B, ...]``.
            gradient: sent gradient of the batch, by parameter.
        """
        self._seen += 1
        if (self._seen - 1) % self._every:
            return
        features = record_features(task, params, x, self._features).mean(0)
        row = {_FEATURES: self._sketches(_FEATURES, features[None])[0]}
        for name, parameters in self._parameters.items():
            flat = torch.cat([gradient[one].detach().flatten() for one in parameters])
            row[f"layer {name}"] = self._sketches(name, flat[None])[0]
        self._rows.append({name: leaf.cpu() for name, leaf in row.items()})

    def state(self) -> dict[str, Tensor]:
        """Return the kept pairs in the order of time as tensors by name, for ``pairs_of``."""
        names = self._rows[0] if self._rows else ()
        return {name: torch.stack([row[name] for row in self._rows]) for name in names}

    def restore(self, state: Mapping[str, Tensor], *, seen: int = 0) -> None:
        """Restore the pairs of ``state`` after a number of seen steps."""
        self._seen = seen
        count = len(next(iter(state.values()), ()))
        self._rows.clear()
        for place in range(count):
            self._rows.append({name: leaf[place] for name, leaf in state.items()})


def pairs_of(state: Mapping[str, Tensor]) -> Pairs:
    """Return the pairs in the ``state`` of a stream that has any."""
    layers = {
        name.removeprefix("layer "): leaf for name, leaf in state.items() if name != _FEATURES
    }
    return Pairs(state[_FEATURES], layers)
