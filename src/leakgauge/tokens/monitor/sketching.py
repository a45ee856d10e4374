"""The gradients of all layers of a step, kept as few numbers in one pass over them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors

from leakgauge.core.rng import torch_stream


class LayerSketch:
    """Keeps at most ``width`` numbers of each layer's gradient.

    Of all parameters one after the other, a number's place is its position modulo the width, in a
    row of its layer. Layers with more than ``width`` numbers have each multiplied by a random
    sign, and those of a place added up: inner products are kept in the mean over signs. Unlike
    random places, as ``leakgauge.tokens.sketch`` has them, these are sums of whole rows. A step
    then takes few operations, and nothing that it makes is new memory.

    Args:
        sizes: numbers of each layer, by name, in the order of the parameters.
        width: numbers that are kept of each.
        seed: of the signs.

    >>> sketch = LayerSketch({"0": 6, "1": 2}, width=4, seed=0)
    >>> kept = sketch([torch.ones(2, 2), torch.ones(2), torch.ones(2)])
    >>> kept.shape, sketch.split(kept[None])["1"].tolist()
    (torch.Size([8]), [[1.0, 1.0]])
    """

    def __init__(self, sizes: Mapping[str, int], *, width: int, seed: int) -> None:
        self._width, self._places = width, dict[str, Tensor]()
        rng = torch_stream(seed, "signs")
        count = sum(sizes.values())
        whole = -(-count // width)
        rows, layers, signs = [], [], []
        start = 0
        for number, (name, size) in enumerate(sizes.items()):
            sign = torch.zeros(whole * width)
            drawn = 2.0 * torch.randint(2, (size,), generator=rng) - 1
            sign[start : start + size] = drawn if size > width else 1.0
            own = torch.arange(start // width, -(-(start + size) // width))
            rows.append(own)  # the first and the last may hold numbers of other layers, too
            layers.append(torch.full_like(own, number))
            signs.append(sign.view(whole, width)[own])
            self._places[name] = (start + torch.arange(min(size, width))) % width
            start += size
        self._rows, self._layers, self._signs = map(torch.cat, (rows, layers, signs))
        self._flat = torch.zeros(whole, width)
        self._signed = torch.empty_like(self._signs)
        self._kept = torch.zeros(len(sizes), width)
        self._front = self._flat.view(-1)[:count]

    def __call__(self, parameters: Sequence[Tensor]) -> Tensor:
        """Return what is kept ``[layers * width]``; the next call writes into the same memory.

        Args:
            parameters: the gradients of all parameters of the layers, in their order.
        """
        if self._flat.device != parameters[0].device:
            self._move(parameters[0].device)
        self._front.copy_(_flat(parameters))
        torch.index_select(self._flat, 0, self._rows, out=self._signed)
        self._signed.mul_(self._signs)
        return self._kept.zero_().index_add_(0, self._layers, self._signed).view(-1)

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return what is kept by layer ``[N, k]``, of rows ``[N, layers * width]``."""
        each = kept.reshape(len(kept), len(self._places), self._width)
        return {
            name: each[:, number, place.to(kept.device)]
            for number, (name, place) in enumerate(self._places.items())
        }

    def _move(self, device: torch.device) -> None:
        for name in ("_rows", "_layers", "_signs", "_flat", "_signed", "_kept"):
            setattr(self, name, getattr(self, name).to(device))
        self._front = self._flat.view(-1)[: len(self._front)]


def _flat(parameters: Sequence[Tensor]) -> Tensor:
    if len({leaf.dtype for leaf in parameters}) == 1:
        whole: Tensor = _flatten_dense_tensors(parameters)  # type: ignore[no-untyped-call]
        return whole
    return torch.cat([leaf.reshape(-1).float() for leaf in parameters])
