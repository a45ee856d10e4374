"""Gradients of a layer that is no product: kept as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.factored.base import Factors


@dataclass(frozen=True, eq=False)
class WholeGradients(Factors):
    """Gradients of records in the parameters of a layer.

    Attributes:
        grads: by full parameter name, leaf ``[n, *p]``, the weight first.
    """

    grads: Grads

    def __len__(self) -> int:
        return len(next(iter(self.grads.values())))

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
        """Return the same layer with other values."""
        return replace(self, grads=tensors)

    def gradient(self) -> Grads:
        """Return the gradients by name."""
        return self.grads
