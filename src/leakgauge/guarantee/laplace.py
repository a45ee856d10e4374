"""The score of a release that sends some coordinates with Laplace noise, and what they show."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy
import torch
from scipy import special
from torch import Tensor

from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flatten
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class LaplaceRatio:
    """The likelihood ratio of the coordinates that a release sends; a coordinate of 0 is not sent.

    It leaves out which coordinates are sent, so it may see less than there is.

    Attributes:
        scale: scale of the noise on each coordinate, above 0.

    References:
        Neyman and Pearson, 1933.

    >>> expected = {"w": torch.tensor([[0.0, 0.0], [2.0, 2.0]])}
    >>> LaplaceRatio(4.0).parts({"w": torch.tensor([[9.0, 0.0]])}, expected).tolist()
    [[[0.5, 9.0, 81.0, 1.0, 2.0]]]
    """

    scale: float
    name: ClassVar[str] = "likelihood-ratio"

    def parts(self, released: Grads, expected: Grads) -> Tensor:
        """Return five parts for each new value ``[n, v, 5]``.

        They are the log ratio, then, over the coordinates that are sent: the sum of their distances
        from H0, that of the squares, their number, and the sum of what the new value moves.
        """
        sent, known = flatten(released).double(), flatten(expected).double()
        chosen = (sent != 0).double()
        away = (sent - known[0]).abs() * chosen
        noise = torch.stack([away.sum(1), away.square().sum(1), chosen.sum(1)], dim=1)
        by_value = []
        for other in known[1:]:
            ratio = ((away - (sent - other).abs() * chosen) / self.scale).sum(1)
            moved = ((other - known[0]).abs() * chosen).sum(1)
            by_value.append(torch.cat([ratio[:, None], noise, moved[:, None]], dim=1))
        return torch.stack(by_value, dim=1)

    def scores(self, parts: Floats, null: Floats, shifts: Floats) -> Floats:
        """Return the log of the mean likelihood ratio over new values ``[n]``."""
        ratios = parts[:, :, 0]
        return np.asarray(special.logsumexp(ratios, axis=1) - np.log(ratios.shape[1]))


def epsilon_laplace_test(null: Floats, *, confidence: float) -> Estimate:
    """Return the epsilon at delta 0 that releases under H0 show, if their noise is Laplace.

    The distances of n coordinates from their true values have a sum of b Gamma(n), which limits the
    scale b exactly. Far from both values, a coordinate that moves by d is likelier under one
    hypothesis by exp(d / b). All coordinates of a release may lie there at once, in either
    direction, and whatever the choice of coordinates adds in one direction it takes in the other.
    So epsilon is at least the largest sum of d in one release, over b.

    Args:
        null: parts of ``LaplaceRatio`` of releases under H0 ``[n, v, 5]``.
        confidence: two-sided confidence of the limits of b.

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.laplace(scale=2.0, size=(1000, 3))
    >>> parts = [[0.0, abs(one).sum(), np.square(one).sum(), 3.0, 3 * 2.0] for one in noise]
    >>> found = epsilon_laplace_test(np.array(parts)[:, None], confidence=0.95)
    >>> found.low < 3.0 < found.high
    True
    """
    furthest = null[:, null[:, :, 4].max(axis=0).argmax()]
    away, count, moved = furthest[:, 1].sum(), furthest[:, 3].sum(), furthest[:, 4].max()
    if moved == 0 or count == 0:
        return Estimate(0.0, 0.0, 0.0, int(count), confidence)
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    low, high = (moved * float(scipy.stats.gamma.ppf(tail, count)) / away for tail in tails)
    return Estimate(float(moved * count / away), float(low), float(high), int(count), confidence)


def laplace_p_value(null: Floats) -> float:
    """Return the p-value of the assumption that the noise of releases under H0 is Laplace.

    For it the mean square is twice the square of the mean distance; the ratio of the two is normal
    around 1 with variance 1 / n, for many coordinates.

    Args:
        null: parts of ``LaplaceRatio`` of releases under H0 ``[n, v, 5]``.
    """
    away, squares, count = (float(null[:, 0, part].sum()) for part in (1, 2, 3))
    if count == 0 or away == 0:
        return 0.0
    ratio = squares * count / (2 * away**2)
    return float(2 * scipy.stats.norm.sf(abs(ratio - 1) * np.sqrt(count)))
