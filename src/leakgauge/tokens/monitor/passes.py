"""One forward pass: its inputs, data features, and gradients of records."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from leakgauge.gradients.factored.base import Factors
from leakgauge.gradients.factored.products import LayerCalls, layer_factors
from leakgauge.gradients.walk import Layer


def first_tensor(given: Any) -> Tensor | None:
    """Return the first tensor with an axis of records in arguments, lists and mappings.

    >>> first_tensor(((None, {"x": torch.zeros(2, 3)}), {"y": torch.zeros(2)})).shape
    torch.Size([2, 3])
    """
    if isinstance(given, Tensor):
        return given if given.dim() > 0 else None
    if isinstance(given, Mapping):
        given = given.values()
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return None
    return next((found for one in given if (found := first_tensor(one)) is not None), None)


def raw(x: Tensor) -> Tensor:
    """Return the inputs of records as numbers ``[n, d]``.

    Integers are words, not quantities: a record then becomes the counts of its words.

    Args:
        x: inputs ``[n, ...]``.

    >>> raw(torch.tensor([[5, 5], [7, 5]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    x = x.detach().reshape(len(x), -1)
    if x.is_floating_point() or len(x) == 0:
        return x.float()
    _, place = torch.unique(x, return_inverse=True)
    counts = torch.zeros(len(x), int(place.max()) + 1, device=x.device)
    return counts.scatter_add_(1, place, torch.ones_like(place, dtype=counts.dtype))


def mean_features(values: Tensor) -> Tensor:
    """Return the mean over records of data features ``[d]``, in single precision on their device.

    Args:
        values: features ``[n, d]``; ``[n, t, d]``, averaged over the t positions; or
            ``[n, ...]``, flattened.
    """
    if values.dtype != torch.float32:
        values = values.float()
    if values.dim() == 3:
        values = values.mean(1)
    return (values if values.dim() == 2 else values.reshape(len(values), -1)).mean(0)


@dataclass(eq=False)
class Pass:
    """One forward pass, and the gradients of its backward pass.

    Attributes:
        due: whether the layers' inputs and output gradients are caught.
        keep: number of first records to keep; None for all.
        x: the model's inputs ``[n, ...]``; None if unknown.
        feature: data features ``[n, ...]``.
        head: name of the layer that took the features, if it was the last one.
        marked: whether a hook waits for the backward pass.
        lengths: number of records of the first call of each layer.
        caught: calls of each layer.
        slopes: gradients in the outputs of each call.
        handles: handles of the hooks on tensors.
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
        """Call ``used`` when the backward pass reaches an output."""
        self.marked = True
        self._hook(output, lambda _: used(self))

    def release(self) -> None:
        """Remove the hooks on tensors, and drop the caught tensors."""
        for handle in self.handles:
            handle.remove()
        self.handles.clear()
        self.caught.clear()
        self.slopes.clear()
        self.x = self.feature = None

    def factors(
        self, modules: dict[str, nn.Module], scale: float = 1.0
    ) -> tuple[dict[str, Factors], list[str]]:
        """Return the gradients of the records by layer, and the layers without any.

        Args:
            modules: modules of the layers that may have factors, by name.
            scale: factor by which the loss was scaled; the gradients are divided by it.
        """
        kept = self.count if self.keep is None else min(self.count, self.keep)
        found: dict[str, Factors] = {}
        for name, caught in self.caught.items():
            slopes = self.slopes[name]
            whole = self.lengths[name] == self.count and len(slopes) == 1
            if whole and caught.is_sound(kept):
                with torch.no_grad():
                    made = layer_factors(modules[name], *_in_single(caught, slopes[0], scale))
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
        """Return the first records, copied so that the batch's memory can be freed."""
        values = values.detach()
        if self.keep is None or len(values) <= self.keep:
            return values
        return values[: self.keep].clone()


def _in_single(caught: LayerCalls, dy: Tensor, scale: float) -> tuple[LayerCalls, Tensor]:
    """Return a layer's only call and its output gradient, unscaled, for sums in float32.

    Under autocast a layer rounds its input to the type of its output.
    """
    (x,) = caught.inputs
    if dy.element_size() < torch.float32.itemsize:
        x, dy = (x.to(dy.dtype).float() if x.is_floating_point() else x), dy.float()
    return LayerCalls(caught.layer, [x], [x]), dy if scale == 1 else dy / scale
