"""The gradients of all layers of a step, kept as few numbers in one pass over them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.rng import torch_stream


class LayerSketch:
    """Keeps at most ``width`` numbers of each layer's gradient.

    Of a layer with more, each number is multiplied by a random sign and added to the place that is
    its position modulo the width: inner products are kept in the mean over signs. Unlike random
    places, as ``leakgauge.tokens.sketch`` has them, these are sums of whole rows. A step takes few
    operations, and writes into memory that is there.

    Args:
        shapes: of the parameters of each layer, by its name.
        width: numbers that are kept of each.
        seed: of the signs.

    >>> shapes = {"0": [torch.Size([2, 2]), torch.Size([2])], "1": [torch.Size([2])]}
    >>> sketch = LayerSketch(shapes, width=4, seed=0)
    >>> kept = sketch([torch.ones(2, 2), torch.ones(2), torch.ones(2)])
    >>> kept.shape, sketch.split(kept[None])["1"].tolist()
    (torch.Size([8]), [[1.0, 1.0]])
    """

    def __init__(
        self, shapes: Mapping[str, Sequence[torch.Size]], *, width: int, seed: int
    ) -> None:
        self._shapes, self._width = dict(shapes), width
        self._sizes = {name: sum(one.numel() for one in own) for name, own in shapes.items()}
        rows = [-(-size // width) for size in self._sizes.values()]
        self._layers = torch.arange(len(rows)).repeat_interleave(torch.tensor(rows))
        rng = torch_stream(seed, "signs")
        self._signs = 2.0 * torch.randint(2, (sum(rows), width), generator=rng) - 1
        self._signs[(torch.tensor(rows) == 1)[self._layers]] = 1.0
        self._flat = torch.zeros(sum(rows), width)
        self._kept = torch.zeros(len(rows), width)
        self._parts = self._views()

    def __call__(self, parameters: list[Tensor]) -> Tensor:
        """Return what is kept ``[layers * width]``; the next call writes into the same memory.

        Args:
            parameters: the gradients of all parameters of the layers, in their order.
        """
        if self._flat.device != parameters[0].device:
            self._move(parameters[0].device)
        torch._foreach_copy_(self._parts, parameters)
        self._flat.mul_(self._signs)
        return self._kept.zero_().index_add_(0, self._layers, self._flat).view(-1)

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return what is kept by layer ``[N, k]``, of rows ``[N, layers * width]``."""
        each = kept.reshape(len(kept), len(self._sizes), self._width)
        return {
            name: each[:, number, : min(size, self._width)]
            for number, (name, size) in enumerate(self._sizes.items())
        }

    def _views(self) -> list[Tensor]:
        """Return the memory of each parameter's gradient, in its shape; each layer has own rows."""
        flat, views, row = self._flat.view(-1), [], 0
        for own in self._shapes.values():
            start = row * self._width
            for shape in own:
                views.append(flat[start : start + shape.numel()].view(shape))
                start += shape.numel()
            row = -(-start // self._width)
        return views

    def _move(self, device: torch.device) -> None:
        for name in ("_layers", "_signs", "_flat", "_kept"):
            setattr(self, name, getattr(self, name).to(device))
        self._parts = self._views()
