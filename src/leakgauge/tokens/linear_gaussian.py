"""The cheap measure: the information of a linear-Gaussian model of features given gradients.

A ridge regression predicts the data features of records from their gradients, in closed form, and
is evaluated on unseen records. The means over a batch are nearly Gaussian by the central limit
theorem, and a Gaussian model has the same information for means over any number of records. Records
therefore stand for batches, and one batch gives many samples.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import derive
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.sketch import Sketch
from leakgauge.tokens.sources import PairSource

COMPONENTS = 16
"""Largest number of predicted principal components of the features."""

PENALTIES = (0.01, 0.1, 1.0, 10.0)
"""Candidate ridge penalties, over the variance of a standardised coordinate."""

FEATURES, GRADIENTS = 64, 200
"""Numbers of kept values of the features, and of the gradients of all layers."""

MOST = 4096
"""Largest number of records of a fit; with more, both the bound and the time grow."""

SURE = 2.0
"""Standard errors of the reduction that a component's left-out residuals must show."""

FOLDS = 4
BLOCKS = 16
FEWEST = 64
"""Smallest number of records of a fit."""


def linear_information(features: Tensor, gradients: Tensor) -> Estimate:
    """Return a linear-Gaussian model's information of features and gradients, in nats.

    Each fold's records are predicted by a fit on the others. A component that the fit cannot
    surely predict, by its leave-one-out residuals, counts as unknown and adds nothing. The figure
    is the mean log ratio of the density of the features given the gradient to that without it. It
    is 0 without a linear relation, a lower bound in the mean for Gaussian features, and approaches
    the information of jointly Gaussian features and gradients as records are added.

    Args:
        features: features of records ``[N, a]``, ordered by time if they have one.
        gradients: sketched gradients of the same records ``[N, b]``, with b well below N.

    Returns:
        The mean over records, with a t interval over consecutive blocks of records. If no component
        is surely predicted it is 0, and the interval is as wide above it as that of a model which
        predicts any component that seems to gain.

    Raises:
        InputError: there are fewer than 64 records, or the numbers of rows differ.

    References:
        Barber and Agakov, The IM algorithm, NeurIPS 2003 (the bound); Cover and Thomas, section
        8.5 (the information of Gaussians).

    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(2000, 2, generator=rng)
    >>> y = 0.9 * x + (1 - 0.9**2) ** 0.5 * torch.randn(2000, 2, generator=rng)
    >>> found = linear_information(x, y)
    >>> found.low < 1.66 < found.high  # -log(1 - 0.81)
    True
    """
    require(
        features.dim() == gradients.dim() == 2 and len(features) == len(gradients),
        f"features are {list(features.shape)}, gradients {list(gradients.shape)}; expected [N, a] "
        "and [N, b]",
    )
    require(
        len(features) >= FEWEST,
        f"there are {len(features)} records; the linear model needs {FEWEST} or more",
    )
    found = _estimate(features, gradients, sure=SURE)
    if found.low < found.high:
        return found
    # nothing was surely predicted: take the upper end of a bolder model
    bold = _estimate(features, gradients, sure=0.0)
    return replace(found, high=bold.high - min(0.0, bold.value))


def _estimate(features: Tensor, gradients: Tensor, *, sure: float) -> Estimate:
    x, g = gradients.double().cpu(), features.double().cpu()
    ratios = torch.zeros(len(g), dtype=torch.float64)
    for held_out in torch.arange(len(g)).chunk(FOLDS):
        known = torch.ones(len(g), dtype=torch.bool)
        known[held_out] = False
        ratios[held_out] = _Fit.on(x[known], g[known], sure).log_ratio(x[held_out], g[held_out])
    blocks = np.array([float(part.mean()) for part in ratios.chunk(BLOCKS)])
    spread = mean_estimate(blocks)
    value, reach = float(ratios.mean()), spread.high - spread.value
    return Estimate(value, value - reach, value + reach, len(g), unit="nats")


def cheap_information(source: PairSource, *, seed: int, matched: bool = True) -> Estimate:
    """Return ``linear_information`` of a source's records or pairs.

    Args:
        source: source of pairs.
        seed: seed of the sketches.
        matched: False for the placebo, gradients of other data.

    Raises:
        InputError: there are fewer than 64 rows.
    """
    rows = source.rows(MOST, matched=matched)
    each = max(1, GRADIENTS // len(rows.gradients))
    gradients = [
        Sketch(leaf.shape[1], width=each, seed=derive(seed, "cheap", name))(leaf)
        for name, leaf in rows.gradients.items()
    ]
    width = rows.features.shape[1]
    features = Sketch(width, width=FEATURES, seed=derive(seed, "cheap"))(rows.features)
    return linear_information(features, torch.cat(gradients, dim=1))


@dataclass(frozen=True, eq=False)
class _Fit:
    """A linear-Gaussian model of the leading components of the features.

    Attributes:
        centre: means of inputs and targets.
        scale: standard deviations of the inputs ``[b]``.
        axes: components ``[a, k]``.
        weights: weights from standardised inputs to components ``[b, k]``.
        prior: variance of each component ``[k]``.
        left: variance of its residual ``[k]``; the prior for a component without prediction.
    """

    centre: tuple[Tensor, Tensor]
    scale: Tensor
    axes: Tensor
    weights: Tensor
    prior: Tensor
    left: Tensor

    @classmethod
    def on(cls, x: Tensor, y: Tensor, sure: float) -> "_Fit":
        """Fit on inputs ``[n, b]`` and targets ``[n, a]``; ``sure`` as for ``_ridge``."""
        centre = x.mean(0), y.mean(0)
        x, y = x - centre[0], y - centre[1]
        scale = x.std(0)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        x = x / scale
        axes = _leading(y)
        y = y @ axes
        prior = y.square().sum(0) / (len(y) - 1)
        weights, left = _ridge(x, y, prior, sure)
        return cls(centre, scale, axes, weights, prior, left)

    def log_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log density ratio per record ``[m]``."""
        y = (y - self.centre[1]) @ self.axes
        rest = y - ((x - self.centre[0]) / self.scale) @ self.weights
        ratio = (self.prior / self.left).log() + y.square() / self.prior
        found: Tensor = (ratio - rest.square() / self.left).sum(1) / 2
        return found


def _leading(y: Tensor) -> Tensor:
    """Return the leading principal axes with variance ``[a, k]``."""
    values, axes = torch.linalg.eigh(y.T @ y)
    varies = values > 1e-10 * values[-1].clamp(min=1e-300)
    leading: Tensor = axes[:, varies][:, -COMPONENTS:]
    return leading


def _ridge(x: Tensor, y: Tensor, prior: Tensor, sure: float) -> tuple[Tensor, Tensor]:
    """Return weights and residual variances, with the best penalty of each component.

    Residuals are leave-one-out residuals, in closed form. A component is predicted if they are
    smaller than its values by ``sure`` standard errors.
    """
    count = len(x)
    values, turn = torch.linalg.eigh(x.T @ x / count)
    turned = x @ turn
    across = turned.T @ y / count
    best, weights = prior.clone(), torch.zeros(x.shape[1], y.shape[1], dtype=x.dtype)
    for penalty in PENALTIES:
        shrunk = across / (values.clamp(min=0) + penalty)[:, None]
        lever = (turned.square() / (values.clamp(min=0) + penalty)).sum(1) / count
        rest = (y - turned @ shrunk) / (1 - lever).clamp(min=1e-6)[:, None]
        left = rest.square().mean(0)
        gain = y.square() - rest.square()
        error = ((gain - gain.mean(0)).square().mean(0) / count).sqrt()
        better = (left < best) & (gain.mean(0) > sure * error)
        best = torch.where(better, left, best)
        weights[:, better] = (turn @ shrunk)[:, better]
    return weights, best
