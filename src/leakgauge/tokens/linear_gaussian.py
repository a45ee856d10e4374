"""The cheap measure: the information of a linear-Gaussian model of features given gradients.

A ridge regression predicts data features from gradients, in closed form, and is evaluated on
unseen rows. Rows are batches, or records that stand for batches: the means over a batch are nearly
Gaussian by the central limit theorem, and a Gaussian model has the same information for means over
any number of records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require
from leakgauge.core.rng import derive, torch_stream
from leakgauge.results.measurements import Estimate
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.normal_scores import NormalScores
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
HALVINGS = 40
"""Halvings of the interval of a mixture's weight."""

LARGEST = 50.0
"""Largest log ratio of one component of one row, in nats; it keeps exponentials finite."""

FEWEST = 64
"""Smallest number of records of a fit."""


def linear_information(
    features: Tensor,
    gradients: Tensor,
    *,
    as_means: bool = False,
    blocks: int = BLOCKS,
    seed: int = 0,
) -> Estimate:
    """Return a linear-Gaussian model's information of features and gradients, in nats.

    Each fold's rows are predicted by a fit on the others. A component that the fit cannot surely
    predict, by its leave-one-out residuals, counts as unknown and adds nothing. The figure is the
    mean log ratio of the density of the features given the gradient to that without it.

    The density given the gradient is a mixture with that without it, whose weight the left-out
    residuals choose, and no gradient counts as further out than the known ones. So the figure is 0
    without a linear relation, and heavy tails take it below 0 by no more than its own error. It is
    a lower bound in the mean if the scores of the features are jointly Gaussian, and approaches
    the information of jointly Gaussian features and gradients as rows are added.

    Args:
        features: features of rows ``[N, a]``, ordered by time if they have one.
        gradients: sketched gradients of the same rows ``[N, b]``, with b well below N.
        as_means: whether rows are records that stand for the means over batches. Means keep the
            records' covariance, but not their ranks, so records keep their values; other rows are
            replaced by their normal scores.
        blocks: number of consecutive blocks of rows; no two blocks share a record.
        seed: seed of the ranks of equal features.

    Returns:
        The mean over rows, with a t interval over consecutive blocks of rows. If no component is
        surely predicted it is 0, and the interval is as wide above it as that of a model which
        predicts any component that seems to gain.

    Raises:
        InputError: there are fewer than 64 rows, or the numbers of rows differ.

    References:
        Barber and Agakov, The IM algorithm, NeurIPS 2003 (the bound); Cover and Thomas, section
        8.5 (the information of Gaussians).

    >>> rng = torch.Generator().manual_seed(0)
    >>> x = torch.randn(2000, 2, generator=rng)
    >>> y = 0.9 * x + (1 - 0.9**2) ** 0.5 * torch.randn(2000, 2, generator=rng)
    >>> found = linear_information(x, y**3)
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
    block = torch.arange(len(features)) * blocks // len(features)
    folds = [*_folds(gradients.double().cpu(), features.double().cpu(), block, as_means, seed)]
    found = _estimate(folds, block, sure=SURE)
    if found.low < found.high:
        return found
    # nothing was surely predicted: take the upper end of a bolder model
    bold = _estimate(folds, block, sure=0.0)
    return replace(found, high=bold.high - min(0.0, bold.value))


@dataclass(frozen=True, eq=False)
class _Fold:
    """Inputs and targets of the known rows and of the held-out ones.

    Attributes:
        rows: places of the held-out rows ``[m]``.
        known: inputs ``[n, b]`` and targets ``[n, a]`` of the other rows.
        held_out: inputs ``[m, b]`` and targets ``[m, a]``.
    """

    rows: Tensor
    known: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]


def _folds(x: Tensor, y: Tensor, block: Tensor, as_means: bool, seed: int) -> Iterator[_Fold]:
    """Yield the folds; a fold has every fourth block of rows, so a drift is no extrapolation."""
    ties = torch_stream(seed, "ties")
    for number in range(FOLDS):
        mine = block % FOLDS == number
        known, held_out = (x[~mine], y[~mine]), (x[mine], y[mine])
        if as_means:
            low, high = known[0].amin(0), known[0].amax(0)
            held_out = held_out[0].clamp(low, high), held_out[1]
        else:
            of_x, of_y = map(NormalScores.of, known)
            known = of_x(known[0]), of_y(known[1], ties)
            held_out = of_x(held_out[0]), of_y(held_out[1], ties)
        yield _Fold(mine.nonzero()[:, 0], known, held_out)


def _estimate(folds: Sequence[_Fold], block: Tensor, *, sure: float) -> Estimate:
    ratios = torch.zeros(len(block), dtype=torch.float64)
    for fold in folds:
        ratios[fold.rows] = _Fit.on(*fold.known, sure).log_ratio(*fold.held_out)
    means = np.array([float(ratios[block == one].mean()) for one in range(int(block.max()) + 1)])
    spread = mean_estimate(means)
    value, reach = float(ratios.mean()), spread.high - spread.value
    return Estimate(value, value - reach, value + reach, len(block), unit="nats")


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
    blocks = BLOCKS if source.block is None else max(FOLDS, len(rows) // source.block)
    each = max(1, GRADIENTS // len(rows.gradients))
    gradients = [
        Sketch(leaf.shape[1], width=each, seed=derive(seed, "cheap", name))(leaf)
        for name, leaf in rows.gradients.items()
    ]
    width = rows.features.shape[1]
    features = Sketch(width, width=FEATURES, seed=derive(seed, "cheap"))(rows.features)
    return linear_information(
        features,
        torch.cat(gradients, dim=1),
        as_means=source.rows_are_records,
        blocks=blocks,
        seed=derive(seed, "cheap", "ties"),
    )


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
        weight: weight of each component's density given the gradient in its mixture ``[k]``.
    """

    centre: tuple[Tensor, Tensor]
    scale: Tensor
    axes: Tensor
    weights: Tensor
    prior: Tensor
    left: Tensor
    weight: Tensor

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
        weights, rest = _ridge(x, y, prior, sure)
        left = torch.where(weights.any(0), rest.square().mean(0), prior)
        weight = _mixture(_log_ratio(y, rest, prior, left))
        return cls(centre, scale, axes, weights, prior, left, weight)

    def log_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log ratio of the mixture's density to the prior's per row ``[m]``."""
        y = (y - self.centre[1]) @ self.axes
        rest = y - ((x - self.centre[0]) / self.scale) @ self.weights
        ratio = _log_ratio(y, rest, self.prior, self.left).clamp(max=LARGEST)
        found: Tensor = (self.weight * ratio.expm1()).log1p().sum(1)
        return found


def _log_ratio(y: Tensor, rest: Tensor, prior: Tensor, left: Tensor) -> Tensor:
    """Return the log ratio of two Gaussian densities by component ``[m, k]``."""
    return ((prior / left).log() + y.square() / prior - rest.square() / left) / 2


def _mixture(ratio: Tensor) -> Tensor:
    """Return the weight of a component's density that fits left-out records best ``[k]``.

    It stays below 1 by a share of a record, so one record costs at most the log of their number.

    Args:
        ratio: log ratios of left-out records to the prior ``[n, k]``.
    """
    gain, count = ratio.clamp(max=LARGEST).expm1(), len(ratio)
    low, high = ratio.new_zeros(ratio.shape[1]), ratio.new_ones(ratio.shape[1])
    for _ in range(HALVINGS):  # the mean log is concave in the weight
        middle = (low + high) / 2
        rises = (gain / (1 + middle * gain)).sum(0) > 0
        low, high = torch.where(rises, middle, low), torch.where(rises, high, middle)
    return torch.where(low > 2.0**-HALVINGS, low, 0.0).clamp(max=1 - 1 / count)


def _leading(y: Tensor) -> Tensor:
    """Return the leading principal axes with variance ``[a, k]``."""
    values, axes = torch.linalg.eigh(y.T @ y)
    varies = values > 1e-10 * values[-1].clamp(min=1e-300)
    leading: Tensor = axes[:, varies][:, -COMPONENTS:]
    return leading


def _ridge(x: Tensor, y: Tensor, prior: Tensor, sure: float) -> tuple[Tensor, Tensor]:
    """Return weights and leave-one-out residuals, with the best penalty of each component.

    A component is predicted if its residuals are smaller than its values by ``sure`` standard
    errors; otherwise its weights are 0.
    """
    count = len(x)
    values, turn = torch.linalg.eigh(x.T @ x / count)
    turned = x @ turn
    across = turned.T @ y / count
    best, kept = prior.clone(), y.clone()
    weights = torch.zeros(x.shape[1], y.shape[1], dtype=x.dtype)
    for penalty in PENALTIES:
        shrunk = across / (values.clamp(min=0) + penalty)[:, None]
        lever = (turned.square() / (values.clamp(min=0) + penalty)).sum(1) / count
        rest = (y - turned @ shrunk) / (1 - lever).clamp(min=1e-6)[:, None]
        left = rest.square().mean(0)
        gain = y.square() - rest.square()
        error = ((gain - gain.mean(0)).square().mean(0) / count).sqrt()
        better = (left < best) & (gain.mean(0) > sure * error)
        best = torch.where(better, left, best)
        kept = torch.where(better, rest, kept)
        weights[:, better] = (turn @ shrunk)[:, better]
    return weights, kept
