"""Test statistics: one number per released gradient, large where H1 is likelier than H0."""

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
"""Share of the largest variance of a layer; a layer with less noise counts as having this much."""


class Statistic(Protocol):
    """A test statistic: a weighted sum of parts of each released gradient.

    Attributes:
        name: as settings and measurements have it.
    """

    name: ClassVar[str]

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the parts ``[n, k]`` of n releases.

        Args:
            released: leaves ``[n, *p]``.
            expected: the release without noise under H0 and H1, leaves ``[2, *p]``.
        """
        ...

    def weights(self, null: Floats, shifts: Floats) -> Floats:
        """Return the weights ``[k]`` of the parts.

        Args:
            null: parts under H0 ``[n, k]``.
            shifts: of each part under H1 ``[k]``, without noise.
        """
        ...


@dataclass(frozen=True)
class Norm:
    """The paper's statistic: the distance of the released gradient from that of H0.

    It contains the noise of all D parameters, so its power falls with the square root of D.

    References:
        Li et al., CCS 2024, section 7.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [1.0, 0.0]])}
    >>> Norm().parts({"w": torch.tensor([[3.0, 4.0]])}, expected).tolist()
    [[5.0]]
    """

    name: ClassVar[str] = "norm"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the statistic ``[n, 1]``."""
        total = sum(
            flat_leaf((leaf - expected[name][0]).double()).square().sum(dim=1)
            for name, leaf in released.items()
        )
        return torch.as_tensor(total).sqrt()[:, None]

    def weights(self, null: Floats, shifts: Floats) -> Floats:
        """Return a weight of 1: there is one part."""
        return np.ones(1)


@dataclass(frozen=True)
class LayerRatio:
    """The likelihood ratio for Gaussian noise whose strength differs by layer.

    The strengths are estimated from trials other than those that are judged. The statistic
    detects a layer without noise. Where the noise is the same everywhere, it equals
    ``LikelihoodRatio`` up to the error of those estimates.
    """

    name: ClassVar[str] = "layer-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the projections ``[n, k]`` on the difference of the expected gradients, by layer.

        A layer without a difference gives 0.
        """
        return torch.stack([_projected(released, expected, name) for name in released], dim=1)

    def weights(self, null: Floats, shifts: Floats) -> Floats:
        """Return each layer's shift divided by its variance, scaled to at most 1."""
        variance = null.var(axis=0)
        floor = max(TINY * float(variance.max()), float(np.finfo(np.float64).tiny))
        weights: Floats = shifts / np.maximum(variance, floor)
        return weights / max(float(np.abs(weights).max()), float(np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class LikelihoodRatio:
    """The projection on g_H1 - g_H0, the most powerful statistic for white Gaussian noise.

    Its unit is that of the gradient: its mean is 0 under H0, and the distance of both under H1.

    References:
        Neyman and Pearson, 1933.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [2.0, 0.0]])}
    >>> LikelihoodRatio().parts({"w": torch.tensor([[3.0, 4.0]])}, expected).tolist()
    [[3.0]]
    """

    name: ClassVar[str] = "likelihood-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the statistic ``[n, 1]``."""
        differences = [(leaf[1] - leaf[0]).double().flatten() for leaf in expected.values()]
        length = torch.linalg.vector_norm(torch.cat(differences))
        by_layer = LayerRatio().parts(released, expected)
        lengths = torch.stack([torch.linalg.vector_norm(one) for one in differences])
        total = (by_layer * lengths).sum(dim=1, keepdim=True)
        return total / length if length > 0 else total

    def weights(self, null: Floats, shifts: Floats) -> Floats:
        """Return a weight of 1: there is one part."""
        return np.ones(1)


def _projected(released: Grads, expected: Grads, name: str) -> Tensor:
    """The projection of one layer ``[n]``."""
    start = expected[name][0].double().flatten()
    difference = expected[name][1].double().flatten() - start
    length = torch.linalg.vector_norm(difference)
    apart = flat_leaf(released[name]).to(torch.float64, copy=True).sub_(start)
    # No matrix product: its rounding depends on how many rows come at once.
    projected = apart.mul_(difference).sum(dim=1)
    return projected / length if length > 0 else torch.zeros_like(projected)
