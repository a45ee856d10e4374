"""From a released gradient to a number: large where H1 is more likely than H0."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flat_leaf

Floats = NDArray[np.float64]

TINY = 1e-10
"""Of the largest variance of a layer: layers of less noise count as having this much."""


class Statistic(Protocol):
    """``parts`` of each released gradient, and the weights that make one number of them."""

    name: ClassVar[str]

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """``[n, k]``, of leaves ``[n, *p]``; ``expected [2, *p]`` is without noise: H0, H1."""
        ...

    def weights(self, null: Floats, gaps: Floats) -> Floats:
        """``[k]``, from parts under H0 ``[n, k]`` and each part's shift under H1 ``[k]``."""
        ...


@dataclass(frozen=True)
class Norm:
    """The paper's: the distance of the released gradient from that of H0.

    The noise of all D parameters is in it, so that its power falls with the square root of D.

    References:
        Li et al., CCS 2024, section 7.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [1.0, 0.0]])}
    >>> Norm().parts({"w": torch.tensor([[3.0, 4.0]])}, expected).tolist()
    [[5.0]]
    """

    name: ClassVar[str] = "norm"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """``[n, 1]``."""
        total = sum(
            flat_leaf((leaf - expected[name][0]).double()).square().sum(dim=1)
            for name, leaf in released.items()
        )
        return torch.as_tensor(total).sqrt()[:, None]

    def weights(self, null: Floats, gaps: Floats) -> Floats:
        """One."""
        return np.ones(1)


@dataclass(frozen=True)
class LayerRatio:
    """The likelihood ratio where each layer has Gaussian noise of its own strength.

    That strength is learnt from trials other than those that are judged. Where a mechanism leaves
    a layer without noise, this statistic sees it; where the noise is the same everywhere, it is
    ``LikelihoodRatio`` but for what is learnt.
    """

    name: ClassVar[str] = "layer-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """``[n, k]``: the projection on the difference of the expected gradients, layer by layer.

        A layer without any difference is 0.
        """
        return torch.stack([_projected(released, expected, name) for name in released], dim=1)

    def weights(self, null: Floats, gaps: Floats) -> Floats:
        """Each layer's shift over its variance."""
        variance = null.var(axis=0)
        floor = max(TINY * float(variance.max()), float(np.finfo(np.float64).tiny))
        weights: Floats = gaps / np.maximum(variance, floor)
        return weights / max(float(np.abs(weights).max()), float(np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class LikelihoodRatio:
    """The projection on g_H1 - g_H0: the most powerful one where the noise is white and Gaussian.

    In units of the gradient: 0 is expected under H0, the distance of both under H1.

    References:
        Neyman and Pearson, 1933.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [2.0, 0.0]])}
    >>> LikelihoodRatio().parts({"w": torch.tensor([[3.0, 4.0]])}, expected).tolist()
    [[3.0]]
    """

    name: ClassVar[str] = "likelihood-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """``[n, 1]``."""
        gaps = [(leaf[1] - leaf[0]).double().flatten() for leaf in expected.values()]
        length = torch.linalg.vector_norm(torch.cat(gaps))
        by_layer = LayerRatio().parts(released, expected)
        lengths = torch.stack([torch.linalg.vector_norm(gap) for gap in gaps])
        total = (by_layer * lengths).sum(dim=1, keepdim=True)
        return total / length if length > 0 else total

    def weights(self, null: Floats, gaps: Floats) -> Floats:
        """One."""
        return np.ones(1)


def _projected(released: Grads, expected: Grads, name: str) -> Tensor:
    """``[n]``, of one layer."""
    start = expected[name][0].double().flatten()
    gap = expected[name][1].double().flatten() - start
    length = torch.linalg.vector_norm(gap)
    # No matrix product: its rounding depends on how many rows come at once.
    found: Tensor = ((flat_leaf(released[name].double()) - start) * gap).sum(dim=1)
    return found / length if length > 0 else torch.zeros_like(found)
