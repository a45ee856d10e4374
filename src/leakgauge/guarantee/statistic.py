"""Test statistics: one number per released gradient, large where H1 is likelier than H0."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
from scipy import special
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.results.statistics import Floats

SMALLEST = float(np.finfo(np.float64).tiny)
TINY = 1e-10
"""Share of the largest variance of a layer; a layer with less noise counts as having this much."""


class Statistic(Protocol):
    """A test statistic: a score made of few parts of each released gradient."""

    name: ClassVar[str]
    """The name in settings and measurements."""

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return k parts for each of v new values ``[n, v, k]``, of n releases.

        Args:
            released: leaves ``[n, *p]``.
            expected: the release without noise under H0, then with each new value, leaves
                ``[m, *p]``; v is m - 1, or 1 where the new values do not matter.
        """
        ...

    def scores(self, parts: Floats, null: Floats, shifts: Floats) -> Floats:
        """Return the scores ``[n]`` of releases.

        Args:
            parts: parts of the releases ``[n, v, k]``.
            null: parts of other releases under H0 ``[n', v, k]``, to estimate the noise.
            shifts: noiseless shift of each part if its new value is the true one ``[v, k]``.
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
    [[[5.0]]]
    """

    name: ClassVar[str] = "norm"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the statistic ``[n, 1, 1]``."""
        total = sum(
            flat_leaf((leaf - expected[name][0]).double()).square().sum(dim=1)
            for name, leaf in released.items()
        )
        return torch.as_tensor(total).sqrt()[:, None, None]

    def scores(self, parts: Floats, null: Floats, shifts: Floats) -> Floats:
        """Return the parts as they are."""
        return parts[:, 0, 0]


@dataclass(frozen=True)
class LayerRatio:
    """The likelihood ratio for Gaussian noise of a different strength in each layer.

    The strengths are estimated from other trials than the scored ones. The statistic
    detects a layer without noise. Where the noise is the same everywhere, it equals
    ``LikelihoodRatio`` up to the error of those estimates. With several equally likely new values,
    it is the log of the mean ratio.
    """

    name: ClassVar[str] = "layer-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the projections on the difference of the expected gradients, by layer.

        ``[n, m - 1, k]``; a layer without a difference gives 0.
        """
        by_value = [
            torch.stack([_projected(released, expected, name, value) for name in released], dim=1)
            for value in range(1, len(next(iter(expected.values()))))
        ]
        return torch.stack(by_value, dim=1)

    def scores(self, parts: Floats, null: Floats, shifts: Floats) -> Floats:
        """Return the log ratio, for a single new value up to a constant and a factor."""
        weights = _weights(null, shifts)
        if len(shifts) > 1:
            return _log_mean_ratio(parts, shifts, weights)
        scaled = weights[0] / max(float(np.abs(weights).max()), SMALLEST)
        return np.asarray(parts[:, 0] @ scaled)


@dataclass(frozen=True)
class LikelihoodRatio:
    """The projection on g_H1 - g_H0, the most powerful statistic for white Gaussian noise.

    Its unit is that of the gradient: its mean is 0 under H0, and the distance of both under H1.
    With several equally likely new values, it is the log of the mean likelihood ratio, with the
    noise of releases under H0.

    References:
        Neyman and Pearson, 1933.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [2.0, 0.0]])}
    >>> LikelihoodRatio().parts({"w": torch.tensor([[3.0, 4.0]])}, expected).tolist()
    [[[3.0]]]
    """

    name: ClassVar[str] = "likelihood-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return the projections on the differences ``[n, m - 1, 1]``; 0 without a difference."""
        by_layer = LayerRatio().parts(released, expected)
        shifts = [flat_leaf(leaf[1:] - leaf[:1]).double() for leaf in expected.values()]
        lengths = torch.stack([torch.linalg.vector_norm(one, dim=1) for one in shifts], dim=1)
        whole = torch.linalg.vector_norm(lengths, dim=1, keepdim=True).clamp(min=SMALLEST)
        return torch.as_tensor((by_layer * lengths).sum(dim=2, keepdim=True) / whole)

    def scores(self, parts: Floats, null: Floats, shifts: Floats) -> Floats:
        """Return the projection, or the log of the mean ratio for several new values."""
        if len(shifts) > 1:
            return _log_mean_ratio(parts, shifts, _weights(null, shifts))
        return parts[:, 0, 0]


def _weights(null: Floats, shifts: Floats) -> Floats:
    """Return each part's shift divided by its variance ``[v, k]``."""
    variance = null.var(axis=0)
    least = float(np.square(TINY * shifts).max())  # without any noise, for finite ratios
    floor = max(TINY * float(variance.max()), least, SMALLEST)
    return np.asarray(shifts / np.maximum(variance, floor))


def _log_mean_ratio(parts: Floats, shifts: Floats, weights: Floats) -> Floats:
    """Return the log of the likelihood ratio's mean over new values ``[n]``."""
    each = ((parts - shifts / 2) * weights).sum(axis=2)
    return np.asarray(special.logsumexp(each, axis=1) - np.log(len(shifts)))


def _projected(released: Grads, expected: Grads, name: str, value: int) -> Tensor:
    """Return the projection of a layer on the difference that a new value makes ``[n]``."""
    start = expected[name][0].double().flatten()
    difference = expected[name][value].double().flatten() - start
    length = torch.linalg.vector_norm(difference)
    apart = flat_leaf(released[name]).to(torch.float64, copy=True).sub_(start)
    # No matrix product: its rounding depends on how many rows come at once.
    projected = apart.mul_(difference).sum(dim=1)
    return projected / length if length > 0 else torch.zeros_like(projected)
