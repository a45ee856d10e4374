"""The gradients of all layers of a step, kept as few numbers in one pass over them."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from leakgauge.core.rng import torch_stream


class LayerSketch:
    """Keeps at most ``width`` numbers of each layer's gradient.

    A layer with more has each number multiplied by a random sign and added to the place that is
    its own place modulo the width. Inner products are kept in the mean over signs. Unlike random
    places, as ``leakgauge.tokens.sketch`` has them, these make sums of whole rows, which is
    several times faster.

    Args:
        sizes: numbers of each layer, by name.
        width: numbers that are kept of each.
        seed: of the signs.

    >>> sketch = LayerSketch({"0": 6, "1": 2}, width=4, seed=0)
    >>> kept = sketch([[torch.ones(2, 2), torch.ones(2)], [torch.ones(2)]])
    >>> kept.shape, sketch.split(kept[None])["1"].tolist()
    (torch.Size([8]), [[1.0, 1.0]])
    """

    def __init__(self, sizes: Mapping[str, int], *, width: int, seed: int) -> None:
        self._sizes, self._width = dict(sizes), width
        rng = torch_stream(seed, "signs")
        signs, rows = [], []
        for number, size in enumerate(self._sizes.values()):
            whole = -(-size // width)
            sign = 2 * torch.randint(2, (whole * width,), generator=rng).float() - 1
            signs.append(torch.ones_like(sign) if whole == 1 else sign)
            rows += [number] * whole
        self._sign, self._rows = torch.cat(signs), torch.tensor(rows)
        self._gaps = [torch.zeros(-size % width) for size in self._sizes.values()]

    def __call__(self, layers: Sequence[Sequence[Tensor]]) -> Tensor:
        """Return what is kept ``[layers * width]``.

        Args:
            layers: the gradients of the parameters of each, in the order of ``sizes``.
        """
        device = layers[0][0].device
        if self._sign.device != device:
            self._sign, self._rows = self._sign.to(device), self._rows.to(device)
            self._gaps = [gap.to(device) for gap in self._gaps]
        parts: list[Tensor] = []
        for leaves, gap in zip(layers, self._gaps, strict=True):
            parts += [leaf.reshape(-1) for leaf in leaves]
            parts.append(gap)
        rows = torch.cat(parts).mul_(self._sign).view(-1, self._width)
        kept = rows.new_zeros(len(self._sizes), self._width)
        return kept.index_add_(0, self._rows, rows).reshape(-1)

    def split(self, kept: Tensor) -> dict[str, Tensor]:
        """Return what is kept by layer ``[N, k]``, of rows ``[N, layers * width]``."""
        each = kept.reshape(len(kept), len(self._sizes), self._width)
        return {
            name: each[:, number, : min(size, self._width)]
            for number, (name, size) in enumerate(self._sizes.items())
        }
