"""Gradients of the single shadow records, and their inner products."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.memory import allowed
from leakgauge.defenses import Identity
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import FlattenView
from leakgauge.results.statistics import Floats

SHARE = 8
"""Blocks stay in memory if all of them take at most 1 / SHARE of the allowed memory."""

ORIGIN_OF = 64
"""Number of records that define the origin by their mean; any point among the gradients works."""


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """Gradients of the single shadow records ``G [n, D]``, as they enter the mean.

    A defense that clips also clips them. They are computed block by block, and the blocks stay in
    memory if all of them fit. An origin near their mean is subtracted, since inner products of
    nearly equal gradients would lose their differences to rounding.
    """

    shadow: Shadow

    @functools.cached_property
    def origin(self) -> Tensor:
        """Mean gradient of the first records ``[D]``."""
        return self._sent(slice(0, min(self._size, ORIGIN_OF, len(self.shadow.data)))).mean(dim=0)

    def products(self, flat: Tensor) -> Floats:
        """Return ``(flat - origin) @ G.T`` for gradients ``flat [k, D]``."""
        flat = flat - self.origin
        parts = [(flat @ block.T).double().cpu().numpy() for _, block in self._blocks(0)]
        return np.concatenate(parts, axis=1)

    def gram(self) -> Floats:
        """Return ``G @ G.T``."""
        n = len(self.shadow.data)
        gram = np.empty((n, n))
        for rows, left in self._blocks(0):
            for columns, right in self._blocks(rows.start, held=(rows, left)):
                products = (left @ right.T).double().cpu().numpy()
                gram[rows, columns] = products
                gram[columns, rows] = products.T
        return gram

    def combine(self, alpha: Floats) -> Floats:
        """Return ``G.T @ alpha`` for ``alpha [n, k]``."""
        parts = (
            (flat.T @ torch.from_numpy(alpha[rows]).to(flat)).double().cpu().numpy()
            for rows, flat in self._blocks(0)
        )
        return sum(parts, start=np.zeros(()))

    def _blocks(
        self, start: int, held: tuple[slice, Tensor] | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Yield the records from ``start`` on in blocks; reuse ``held``."""
        size = self._size
        for first in range(start, len(self.shadow.data), size):
            rows = slice(first, min(first + size, len(self.shadow.data)))
            yield held if held and held[0] == rows else (rows, self._flat(rows))

    @functools.cached_property
    def _kept(self) -> dict[int, Tensor]:
        """Blocks kept so far, by their first record."""
        return {}

    @functools.cached_property
    def _keeps(self) -> bool:
        """Whether all blocks fit; two instances may be in use at once."""
        n = len(self.shadow.data)
        return n <= self._size or n * self._bytes <= allowed() // SHARE

    @property
    def _bytes(self) -> int:
        """Size of the gradient of one record, in bytes."""
        return sum(leaf.numel() * leaf.element_size() for leaf in self.shadow.params.values())

    @property
    def _size(self) -> int:
        """Number of records in a block; their gradients take a quarter of ``max_bytes``."""
        return max(1, self.shadow.max_bytes // 4 // self._bytes)

    def _flat(self, rows: slice) -> Tensor:
        flat = self._kept.get(rows.start)
        if flat is None:
            flat = self._sent(rows).sub_(self.origin)
        if self._keeps:
            self._kept[rows.start] = flat
        return flat

    def _sent(self, rows: slice) -> Tensor:
        alone = sent_alone(self.shadow)
        index = np.arange(rows.start, rows.stop)[:, None]
        return torch.cat([FlattenView()(grads) for grads in alone.gradients(index)])


def sent_alone(shadow: Shadow) -> Shadow:
    """Return a shadow whose gradients of single records are those that enter a batch's mean."""
    return replace(shadow, defense=replace(shadow.defense, update=Identity(), learn=None))


def record_noise(shadow: Shadow) -> float:
    """Return the variance of a coordinate of the defense's noise, at the scale of one record."""
    return shadow.batch_size * shadow.defense.noise_std**2
