"""Gradients of an embedding: which words a record has, and the gradients at their places."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.factored.base import Factors


@dataclass(frozen=True, eq=False)
class EmbeddingFactors(Factors):
    """Those of an embedding.

    Attributes:
        weight: full name of the weight ``[words, d]``.
        words: number of words.
        index: words of each record ``[n, t]``, int64.
        dy: gradients in the outputs ``[n, t, d]``; zeros at words that do not learn.
    """

    weight: str
    words: int
    index: Tensor
    dy: Tensor

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight's gradient."""
        return self.words, self.dy.shape[2]

    def tensors(self) -> dict[str, Tensor]:
        """Return words and output gradients."""
        return {"index": self.index, "dy": self.dy}

    def replaced(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return the same layer with other values."""
        return replace(self, index=tensors["index"], dy=tensors["dy"])

    def gradient(self) -> Grads:
        """Return the gradients by name."""
        return {self.weight: self._added(self.dy)}

    def gram(self) -> Tensor:
        """Return the inner products of gradients ``[n, n]``, over the words that a record has."""
        used, index = torch.unique(self.index, return_inverse=True)
        return super(EmbeddingFactors, replace(self, words=len(used), index=index)).gram()

    def project(self, kernels: Tensor) -> Tensor:
        """Return the weight's gradient times kernels ``[n, words, k]``."""
        return self._added(self.dy @ kernels.T)

    def _added(self, values: Tensor) -> Tensor:
        """Add values ``[n, t, d]`` up by word ``[n, words, d]``."""
        made = values.new_zeros(len(values), self.words, values.shape[2])
        return made.scatter_add(1, self.index[:, :, None].expand_as(values), values)

    def _norms(self, p: float) -> Tensor:
        if p != 2:
            return super()._norms(p)
        same = (self.index[:, :, None] == self.index[:, None, :]).to(self.dy.dtype)
        return (same * (self.dy @ self.dy.mT)).sum((1, 2)).clamp(min=0).sqrt()
