"""Weights of a layer without its biases, and norms of their gradients by record."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from leakgauge.core.types import Params
from leakgauge.gradients.factored.base import Factors, WholeGradients
from leakgauge.gradients.factored.convolution import ConvolutionFactors
from leakgauge.gradients.factored.linear import LinearFactors


@dataclass(frozen=True, eq=False)
class VectorSizes:
    """Sizes of vectors, one per record; each attribute is ``[n]``, float64.

    Attributes:
        squares: sum of squares.
        absolute: sum of absolute values.
        largest: largest absolute value.
        range: largest entry minus smallest.
    """

    squares: Tensor
    absolute: Tensor
    largest: Tensor
    range: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "VectorSizes":
        """Return the sizes of vectors ``[n, d]``."""
        low, high = (end.double() for end in (values.amin(1), values.amax(1)))
        size = torch.linalg.vector_norm
        squares = size(values, dim=1, dtype=torch.float64).square()
        absolute = size(values, 1, dim=1, dtype=torch.float64)
        return cls(squares, absolute, torch.maximum(-low, high), high - low)

    @classmethod
    def joined(cls, parts: Iterable["VectorSizes"]) -> "VectorSizes":
        """Return the sizes of the records of all parts, one part after the other."""
        every = list(parts)
        return cls(*(torch.cat([getattr(part, one.name) for part in every]) for one in fields(cls)))

    def concatenated(self, other: "VectorSizes") -> "VectorSizes":
        """Return the sizes of each record's two vectors as one; ranges are added."""
        return VectorSizes(
            self.squares + other.squares,
            self.absolute + other.absolute,
            torch.maximum(self.largest, other.largest),
            self.range + other.range,
        )


def is_weight(name: str) -> bool:
    """Return whether a parameter is a weight, not a bias, by its name.

    >>> [is_weight(name) for name in ("fc.weight", "fc.bias", "lstm.bias_hh_l0", "bias.weight")]
    [True, False, False, True]
    """
    return "bias" not in name.rpartition(".")[2]


def size_of(params: Params, names: Iterable[str]) -> int:
    """Return the number of values of the parameters with these names."""
    return sum(params[name].numel() for name in names)


def weights_of(found: Factors) -> Factors | None:
    """Return the gradients of a layer's weights without its biases; None if it has no weights.

    >>> made = LinearFactors("weight", "bias", torch.ones(1, 1, 2), torch.ones(1, 1, 3))
    >>> [list(factors.gradient()) for factors in (made, weights_of(made))]
    [['weight', 'bias'], ['weight']]
    """
    if isinstance(found, LinearFactors | ConvolutionFactors):
        return replace(found, bias=None)
    if isinstance(found, WholeGradients):
        kept = {name: leaf for name, leaf in found.grads.items() if is_weight(name)}
        return WholeGradients(kept) if kept else None
    return found


def spread(found: Factors) -> VectorSizes:
    """Return the sizes of the gradients, without building those of a single outer product."""
    if isinstance(found, LinearFactors) and found.x.shape[1] == 1:
        ends = found.range().double()
        absolute, root, largest = (found.norms(p).double() for p in (1, 2, math.inf))
        return VectorSizes(root.square(), absolute, largest, ends)
    return VectorSizes.joined(map(VectorSizes.of, found.chunks()))
