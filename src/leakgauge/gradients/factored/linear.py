"""Gradients of linear layers and embeddings as factors: inputs times output gradients."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.factored.base import Factors


@dataclass(frozen=True, eq=False)
class LinearFactors(Factors):
    """Gradients of a linear layer that each record passes at t positions.

    Attributes:
        weight: full name of the weight.
        bias: full name of the bias; None without one.
        x: inputs ``[n, t, in]``.
        dy: gradients in the outputs ``[n, t, out]``.
        transposed: whether the weight is kept as ``[in, out]``, as in ``Conv1D`` of transformers.
    """

    stored = ("x", "dy")

    weight: str
    bias: str | None
    x: Tensor
    dy: Tensor
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight's gradient."""
        return self.dy.shape[2], self.x.shape[2]

    def gradient(self) -> Grads:
        """Return the gradients by name."""
        made = self.x.mT @ self.dy if self.transposed else self.dy.mT @ self.x
        grads = {self.weight: made}
        return grads if self.bias is None else {**grads, self.bias: self.dy.sum(1)}

    def gram(self) -> Tensor:
        """Return the inner products of gradients ``[n, n]``; factors suffice for one position."""
        if self.x.shape[1] > 1:
            return super().gram()
        x, dy = self.x[:, 0], self.dy[:, 0]
        inputs = x @ x.T if self.bias is None else x @ x.T + 1
        return inputs * (dy @ dy.T)

    def project(self, kernels: Tensor) -> Tensor:
        """Return the weight's gradient ``[out, in]`` times kernels ``[n, out, k]``."""
        passed = self.x @ kernels.T
        return self.dy.mT * passed if self.x.shape[1] == 1 else self.dy.mT @ passed

    def range(self) -> Tensor:
        """Return the largest entry minus the smallest ``[n]``; ends suffice for one position."""
        if self.x.shape[1] > 1:
            return super().range()
        x, dy = ([one[:, 0].amin(1), one[:, 0].amax(1)] for one in (self.x, self.dy))
        products = [one * other for one in x for other in dy]
        found = torch.stack(products if self.bias is None else products + dy)
        return found.max(0).values - found.min(0).values

    def _norms(self, p: float) -> Tensor:
        if self.x.shape[1] == 1:
            return self._of_products(p)
        _, t, width = self.x.shape
        if p == 2 and t * (width + self.dy.shape[2]) < width * self.dy.shape[2]:
            return self._of_pairs()
        return super()._norms(p)

    def _of_products(self, p: float) -> Tensor:
        """Return the norms of one position: the norm of an outer product is a product of norms."""
        x: Tensor = torch.linalg.vector_norm(self.x[:, 0], p, dim=1)
        dy: Tensor = torch.linalg.vector_norm(self.dy[:, 0], p, dim=1)
        if self.bias is None:
            return x * dy
        both: Tensor = torch.linalg.vector_norm(torch.stack([x, torch.ones_like(x)]), p, dim=0)
        return both * dy

    def _of_pairs(self) -> Tensor:
        """Return the norms from sums over pairs of positions."""
        of_inputs = self.x @ self.x.mT if self.bias is None else self.x @ self.x.mT + 1
        return (of_inputs * (self.dy @ self.dy.mT)).sum((1, 2)).clamp(min=0).sqrt()


@dataclass(frozen=True, eq=False)
class EmbeddingFactors(Factors):
    """Gradients of an embedding: the words of each record, and the gradients at their places.

    Attributes:
        weight: full name of the weight ``[words, d]``.
        words: number of words.
        index: words of each record ``[n, t]``, int64.
        dy: gradients in the outputs ``[n, t, d]``; zeros at words that are not trained.
    """

    stored = ("index", "dy")

    weight: str
    words: int
    index: Tensor
    dy: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight's gradient."""
        return self.words, self.dy.shape[2]

    def gradient(self) -> Grads:
        """Return the gradients by name."""
        return {self.weight: self._added(self.dy)}

    def gram(self) -> Tensor:
        """Return the inner products of gradients ``[n, n]``, over the words that occur."""
        used, index = torch.unique(self.index, return_inverse=True)
        return super(EmbeddingFactors, replace(self, words=len(used), index=index)).gram()

    def project(self, kernels: Tensor) -> Tensor:
        """Return the weight's gradient times kernels ``[n, words, k]``."""
        return self._added(self.dy @ kernels.T)

    def _added(self, values: Tensor) -> Tensor:
        """Return the sums of values ``[n, t, d]`` by word ``[n, words, d]``."""
        made = values.new_zeros(len(values), self.words, values.shape[2])
        return made.scatter_add(1, self.index[:, :, None].expand_as(values), values)

    def _norms(self, p: float) -> Tensor:
        if p != 2:
            return super()._norms(p)
        same = (self.index[:, :, None] == self.index[:, None, :]).to(self.dy.dtype)
        return (same * (self.dy @ self.dy.mT)).sum((1, 2)).clamp(min=0).sqrt()
