"""Gradients of many records in the parameters of one layer: the common interface."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.types import Grads

CHUNK_BYTES = 2**25
"""Memory of gradients that are computed at once."""


class Factors(ABC):
    """The gradients of n records in the parameters of one layer.

    Subclasses keep factors, and compute whole gradients only without a cheaper way.
    """

    stored: ClassVar[tuple[str, ...]] = ()
    """Names of the fields that hold one entry per record."""

    @abstractmethod
    def gradient(self) -> Grads:
        """Return the gradients by full parameter name, leaf ``[n, *p]``."""

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the weight's gradient as a matrix ``[out, in_features]``.

        A convolution has ``[out, in * k * k]``, an embedding ``[words, dimensions]``, and a linear
        layer ``[out, in]``, also one that keeps its weight transposed.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the stored tensors by name, each ``[n, ...]``."""
        return {name: getattr(self, name) for name in self.stored}

    def replaced(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return the layer with other stored tensors."""
        return replace(self, **tensors)  # type: ignore[type-var]

    @property
    def out(self) -> int:
        """Rows of the weight's gradient."""
        return self.shape[0]

    @property
    def in_features(self) -> int:
        """Columns of the weight's gradient."""
        return self.shape[1]

    def rows(self, index: Tensor | slice) -> Self:
        """Return the gradients of the records at ``index``."""
        return self.replaced({name: leaf[index] for name, leaf in self.tensors().items()})

    def to(self, where: Any) -> Self:
        """Return the gradients on a device or in another floating type; word codes stay int64."""
        stays = {n for n, leaf in self.tensors().items() if not leaf.is_floating_point()}
        kept = stays if isinstance(where, torch.dtype) else set()
        moved = {n: leaf if n in kept else leaf.to(where) for n, leaf in self.tensors().items()}
        return self.replaced(moved)

    def norms(self, p: float = 2) -> Tensor:
        """Return the p-norm of each record's gradient ``[n]``, over all parameters of the layer.

        Raises:
            InputError: p is not 1, 2 or infinity.
        """
        require(p in (1, 2, math.inf), f"norm is p = {p}; expected 1, 2 or infinity")
        return self._norms(p)

    def range(self) -> Tensor:
        """Return the largest entry of each record's gradient minus the smallest ``[n]``.

        References:
            Mo et al., Quantifying and Localizing Usable Information Leakage from Neural Network
            Gradients, 2021, Eq. 10.
        """
        return torch.cat([one.max(1).values - one.min(1).values for one in self.chunks()])

    def gram(self) -> Tensor:
        """Return the inner products of the records' gradients ``[n, n]``."""
        parts = [leaf.reshape(len(leaf), -1) for leaf in self.gradient().values()]
        return sum((one @ one.T for one in parts), parts[0].new_zeros(len(self), len(self)))

    def project(self, kernels: Tensor) -> Tensor:
        """Return the weight's gradient times kernels that span its rows ``[n, out, k]``.

        The result has a slope in the kernels ``[k, in_features]``.
        """
        weight = next(iter(self.gradient().values()))
        return weight.reshape(len(weight), *self.shape) @ kernels.T

    def chunks(self) -> Iterator[Tensor]:
        """Yield all gradients ``[m, parameters]``, some records at a time."""
        each = sum(leaf.nbytes for leaf in self.rows(slice(0, 1)).gradient().values())
        size = max(1, CHUNK_BYTES // max(1, each))
        for start in range(0, len(self), size):
            grads = self.rows(slice(start, start + size)).gradient()
            yield torch.cat([leaf.reshape(len(leaf), -1) for leaf in grads.values()], dim=1)

    def _norms(self, p: float) -> Tensor:
        return torch.cat([torch.linalg.vector_norm(part, p, dim=1) for part in self.chunks()])


def joined(parts: Sequence[Factors]) -> Factors:
    """Return the factors of one layer for the records of all parts, in order."""
    names = parts[0].tensors()
    each = [part.tensors() for part in parts]
    return parts[0].replaced({name: torch.cat([one[name] for one in each]) for name in names})


@dataclass(frozen=True, eq=False)
class WholeGradients(Factors):
    """Gradients of a layer that are not products and are kept in full.

    Attributes:
        grads: gradients by full parameter name, leaf ``[n, *p]``, the weight first.
    """

    grads: Grads

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the first parameter's gradient; a vector is one row."""
        first = next(iter(self.grads.values()))
        out = first.shape[1] if first.dim() > 2 else 1
        return out, first[0].numel() // out

    def tensors(self) -> dict[str, Tensor]:
        """Return the gradients."""
        return dict(self.grads)

    def replaced(self, tensors: Mapping[str, Tensor]) -> Self:
        """Return the layer with other gradients."""
        return replace(self, grads=tensors)

    def gradient(self) -> Grads:
        """Return the gradients by name."""
        return self.grads
