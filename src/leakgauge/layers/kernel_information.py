"""Bounds on the information between a layer's output and the input, by Gaussian kernels."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge.core.checks import require, require_count, require_positive
from leakgauge.gradients.batching import slices
from leakgauge.gradients.gradients import MAX_BYTES

SIGMA2 = 0.1
"""Default variance of the noise; Mo et al. give none."""

SATURATED = 0.99
"""Share of log2 n above which the upper bound depends only on the number of records."""


@dataclass(frozen=True)
class InformationBounds:
    """Bounds on I(X; T_l) in bits.

    Attributes:
        lower: bound from below, in bits.
        upper: bound from above, in bits.
        n: number of records; both bounds are at most log2 n.
        sigma2: variance of the noise.

    >>> found = InformationBounds(1.0, 2.0, 16, 0.1)
    >>> found.shares, found.saturated
    ((0.25, 0.5), False)
    """

    lower: float
    upper: float
    n: int
    sigma2: float

    @property
    def shares(self) -> tuple[float, float]:
        """Both bounds over log2 n, the largest entropy of n records (Eq. 11), from 0 to 1."""
        return self.lower / math.log2(self.n), self.upper / math.log2(self.n)

    @property
    def saturated(self) -> bool:
        """Whether the upper bound is near log2 n, so that more records would raise it."""
        return self.shares[1] >= SATURATED


def information_bounds(
    t: Tensor, *, sigma2: float = SIGMA2, max_bytes: int = MAX_BYTES
) -> InformationBounds:
    """Return bounds on the information between a record and its noisy output, in bits.

    A layer is deterministic, so that its output separates any two records that it does not map to
    one point, and the information is trivial or infinite. Gaussian noise of variance
    ``sigma2`` makes it finite; the figures depend on it, and on the scale of the outputs. Then,
    with k(d) = exp(-d^2 / (2 a sigma2)), the information lies between::

        -(1/n) sum_i log2 (1/n) sum_j k(|t_i - t_j|)

    at a = 4 (below) and at a = 1 (above). This holds exactly where X is one of these n records,
    each equally likely. For the population that they come from it holds as long as the bounds stay
    well below log2 n: both saturate there, because each record is its own neighbour (i = j).

    Eq. 12 of Mo et al., as printed, has neither the minus sign of the exponents nor the
    exponential.

    Args:
        t: outputs ``[n, ...]``, as from ``layer_outputs``.
        sigma2: variance of the noise that is added to each value.
        max_bytes: working memory in float64, besides a copy of ``t``. The time grows with n^2 d.

    Raises:
        InputError: there are fewer than two records, values are not finite, or ``sigma2`` is not
            above 0.

    References:
        Kolchinsky and Tracey, Estimating mixture entropy with pairwise distances, Entropy 2017;
        Mo et al., Layer-wise Characterization of Latent Information Leakage, 2021, section 9.1.

    >>> found = information_bounds(torch.tensor([[0.0], [0.0], [99.0], [99.0]]))
    >>> found.lower, found.upper, found.saturated
    (1.0, 1.0, False)
    """
    require_positive(sigma2, "sigma2")
    require_count(max_bytes, "max_bytes")
    require(t.dim() > 0 and len(t) > 1, f"t is {list(t.shape)}; expected [n, ...], n at least 2")
    require(bool(t.isfinite().all()), "t has values that are not finite")
    t = t.reshape(len(t), -1)
    t = t - t.mean(0) if t.is_floating_point() else t  # small values round less in products
    # float64: four blocks of distances, the outputs of a block on either side, and squares
    size = max(1, max_bytes // (32 * (len(t) + t.shape[1])))
    logs = torch.cat([_log_kernels(t, rows, size, sigma2) for rows in slices(len(t), size)], dim=1)
    upper, lower = ((math.log(len(t)) - logs.mean(1)) / math.log(2)).tolist()
    # only rounding leaves [0, log2 n]
    lower, upper = (min(max(0.0, bound), math.log2(len(t))) for bound in (lower, upper))
    return InformationBounds(lower, upper, len(t), sigma2)


def _log_kernels(t: Tensor, rows: slice, size: int, sigma2: float) -> Tensor:
    """Return the log of the sum of kernels over all records ``[2, rows]``, at a = 1 and 4.

    ``size`` outputs are converted to float64 at once. The distance of a record to itself is 0.
    """
    own = t[rows].double()
    parts = []
    for columns in slices(len(t), size):
        other = t[columns].double()
        squares = own.square().sum(1)[:, None] + other.square().sum(1)
        parts.append(squares - 2 * own @ other.T)
    distances = torch.cat(parts, dim=1).clamp(min=0)
    places = torch.arange(len(own), device=t.device)
    distances[places, places + rows.start] = 0
    exponents = distances / (-2 * sigma2)
    return torch.stack([exponents.logsumexp(1), (exponents / 4).logsumexp(1)])
