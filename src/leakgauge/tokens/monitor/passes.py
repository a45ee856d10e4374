"""What one forward pass shows of its batch."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.factored.products import LayerCalls, layer_factors
from leakgauge.gradients.walk import Layer


@dataclass(eq=False)
class Pass:
    """One forward pass, and what the backward pass adds to it.

    Attributes:
        due: whether the layers' inputs and output gradients are caught.
        keep: the first records of which they are kept; None for all.
        x: the model's inputs ``[n, ...]``; None where nothing shows them.
        feature: data features ``[n, ...]``.
        head: name of the layer that took the features in, where that was the last one.
        marked: whether a hook waits for the backward pass.
        lengths: records of the first call of each layer.
        caught: calls of each layer.
        slopes: gradients in the outputs of each call.
        handles: of the hooks on its tensors.
    """

    due: bool
    keep: int | None = None
    x: Tensor | None = None
    feature: Tensor | None = None
    head: str | None = None
    marked: bool = False
    lengths: dict[str, int] = field(default_factory=dict)
    caught: dict[str, LayerCalls] = field(default_factory=dict)
    slopes: dict[str, list[Tensor]] = field(default_factory=dict)
    handles: list[RemovableHandle] = field(default_factory=list)

    def catch(self, layer: Layer, x: Tensor, output: Tensor) -> None:
        """Keep a call of a layer, and wait for the gradient in its output."""
        self.lengths.setdefault(layer.name, len(x))
        caught = self.caught.setdefault(layer.name, LayerCalls(layer))
        kept = self._first(x)
        caught.inputs.append(kept)
        caught.outputs.append(kept)  # one for each call; only their number counts
        slopes = self.slopes.setdefault(layer.name, [])
        self._hook(output, lambda grad: slopes.append(self._first(grad)))

    def mark(self, output: Tensor, used: Callable[["Pass"], None]) -> None:
        """Call ``used`` where the backward pass reaches an output."""
        self.marked = True
        self._hook(output, lambda _: used(self))

    def release(self) -> None:
        """Remove the hooks on tensors, and drop what was caught."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.caught.clear()
        self.slopes.clear()
        self.x = self.feature = None

    def factors(self, modules: dict[str, nn.Module]) -> tuple[dict[str, Factors], list[str]]:
        """Return the gradients of the records by layer, and the layers that show none.

        Args:
            modules: of the layers that may have factors, by name.
        """
        kept = self.count if self.keep is None else min(self.count, self.keep)
        found: dict[str, Factors] = {}
        for name, caught in self.caught.items():
            slopes = self.slopes[name]
            whole = self.lengths[name] == self.count and len(slopes) == 1
            if whole and caught.is_sound(kept):
                with torch.no_grad():
                    made = layer_factors(modules[name], caught, slopes[0])
                if made is not None:
                    found[name] = made
        return found, [name for name in modules if name not in found]

    def _hook(self, output: Tensor, function: Callable[[Tensor], None]) -> None:
        self.handles.append(output.register_hook(function))  # type: ignore[no-untyped-call]

    @property
    def count(self) -> int:
        """Number of records."""
        for one in (self.x, self.feature):
            if one is not None:
                return len(one)
        return next(iter(self.lengths.values()), 0)

    def _first(self, values: Tensor) -> Tensor:
        """Return copies of the first records; their batch's memory is then free as it would be."""
        values = values.detach()
        if self.keep is None or len(values) <= self.keep:
            return values
        return values[: self.keep].clone()
