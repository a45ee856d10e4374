"""The outputs of layers one after the other, with few passes through the network."""

from collections.abc import Sequence

from torch import Tensor

from leakgauge.core.checks import InputError
from leakgauge.core.types import Params, Task
from leakgauge.layers.representations import TRIAL, layer_outputs

AT_ONCE = 2**29
"""Bytes of outputs that are held."""


class Outputs:
    """Gives the outputs of one layer after the other, in the order of ``names``.

    A pass keeps those of as many layers as memory lets it, so a network of many small layers is
    passed once, not once a layer.

    Args:
        task: the model.
        params: of the model.
        x: records ``[n, ...]``.
        names: of the layers, in the order in which they are asked for.
        max_bytes: bound on the outputs that are held; those of one layer may exceed it.
    """

    def __init__(
        self,
        task: Task,
        params: Params,
        x: Tensor,
        names: Sequence[str],
        *,
        max_bytes: int = AT_ONCE,
    ) -> None:
        self._given = (task, params, x)
        self._names = list(names)
        self._max_bytes = max_bytes
        self._sizes: dict[str, int] | None = None
        self._held: dict[str, Tensor] = {}

    def of(self, name: str) -> Tensor:
        """Return the outputs of a layer ``[n, d]``, and hold them no longer.

        Raises:
            InputError: this layer has none.
        """
        if name not in self._held:
            self._held = layer_outputs(*self._given, layers=self._together(name))
        return self._held.pop(name)

    def _together(self, name: str) -> list[str]:
        """Return the layers of the next pass, this one first."""
        sizes = self._measured()
        found, left = [name], self._max_bytes - sizes.get(name, 0)
        for other in self._names[self._names.index(name) + 1 :] if name in sizes else ():
            left -= sizes.get(other, 0)
            if left < 0:
                break
            if other in sizes:
                found.append(other)
        return found

    def _measured(self) -> dict[str, int]:
        """Return the bytes of the outputs of each layer that has some."""
        if self._sizes is None:
            task, params, x = self._given
            try:
                few = layer_outputs(task, params, x[:TRIAL])
            except InputError:  # of one layer; each is asked for by itself then
                few = {}
            self._sizes = {name: leaf[0].nbytes * len(x) for name, leaf in few.items()}
        return self._sizes
