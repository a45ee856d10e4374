"""Fisher's linear discriminant on the gradients of single records."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.defenses import Defense, Identity
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope, held_out_folds, log_loss
from leakgauge.inference.adversaries.scatter import Scatter
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import Flat

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RIDGES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
"""Tried by default, relative to the mean squared norm of a record's gradient in its group."""

ORIGIN_OF = 64
"""Records whose mean gradient is the origin: any point amid the gradients would do."""


@dataclass(frozen=True)
class Discriminant:
    """The likelihood ratio of Gaussian batches, learnt from single records.

    The gradient of a batch of B records with secret a is taken as Gaussian, with mean ``mu_a`` and
    covariance ``S / B + noise_std**2 I``: its log-likelihood is linear in the gradient but for a
    term that all secrets share. ``mu_a`` and ``S`` (within the groups) are those of the shadow
    records' own gradients: no batch is bootstrapped, and n records in D >> n dimensions need an
    n x n matrix alone. A ridge on ``S`` makes up for how few they are.

    Records are clipped as the shadow's defense clips them, and the Gaussian noise that it adds
    takes the ridge's place; so this is the adversary for noisy gradients. What else the defense
    does to the mean enters through held-out batches alone, which pick the ridge and the slope.
    The batch gradient must be the mean over its records.

    Attributes:
        ridge: added to ``S``, relative to the mean squared norm of a record's gradient in its
            group; None picks the one of ``RIDGES`` with the smallest log loss on held-out records.
        assume: the defense to reckon with; None takes the shadow's.
        batches: judged batches of held-out shadow records.
        folds: of the shadow records.
    """

    ridge: float | None = None
    assume: Defense | None = None
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "discriminant"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            require_positive(self.ridge, "ridge")
        require_positive(self.batches, "number of judged shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def bench(self, shadow: Shadow) -> Shadow:
        """The shadow, under the defense to reckon with."""
        return shadow if self.assume is None else replace(shadow, defense=self.assume)

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedDiscriminant":
        """Pick the ridge and calibrate on held-out shadow records, then fit on all.

        Nothing is drawn from ``rng``: the fit is a function of the shadow.
        """
        bench = self.bench(shadow)
        ridges = RIDGES if self.ridge is None else (self.ridge,)
        solver = Solver.prepare(bench)
        said: list[list[Floats]] = [[] for _ in ridges]
        truth = []
        for part in held_out_folds(bench, folds=self.folds, batches=self.batches):
            solved = solver.solve(part.rest, ridges)
            for grads in bench.gradients(part.batches):
                for kept, linear in zip(said, solved, strict=True):
                    kept.append(linear(grads))
            truth.append(part.secret)
        secret = np.concatenate(truth)
        trials = [HeldOut(np.concatenate(kept), secret) for kept in said]
        best, slope = pick(trials)
        (linear,) = solver.solve(np.arange(len(bench.data)), (ridges[best],))
        held_out = HeldOut(slope * trials[best].log_odds, secret)
        return FittedDiscriminant(self, ridges[best], slope, linear, log_prior, held_out)


def pick(tried: Sequence[HeldOut]) -> tuple[int, float]:
    """Which of several had the smallest log loss on held-out batches, and its slope."""
    slopes = [fit_slope(one) for one in tried]
    losses = [log_loss(one, slope) for one, slope in zip(tried, slopes, strict=True)]
    best = int(np.argmin(losses))
    return best, slopes[best]


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores that are linear in the gradient.

    Attributes:
        weight: ``[D, m]``.
        intercept: ``[m]``.
    """

    weight: Floats
    intercept: Floats

    def __call__(self, seen: Grads) -> Floats:
        """``[n, m]`` for gradients with leaves ``[n, *p]``."""
        flat = Flat()(seen).double().cpu().numpy()  # no product overflows
        scores: Floats = flat @ self.weight + self.intercept
        return scores


@dataclass(frozen=True, eq=False)
class FittedDiscriminant:
    """A fitted ``Discriminant``.

    Attributes:
        settings: what was asked for.
        ridge: relative, as used.
        slope: of the log-odds.
        linear: the log-odds before the slope.
        log_prior: ``[m]``.
        held_out: what such adversaries said of held-out shadow batches.
    """

    settings: Discriminant
    ridge: float
    slope: float
    linear: Linear
    log_prior: Floats
    held_out: HeldOut

    @property
    def details(self) -> str:
        """The settings, the ridge and the calibrated slope."""
        return f"{self.settings!r}, ridge {self.ridge:g}, slope {self.slope:.3f}"

    def log_posterior(self, seen: Grads) -> Floats:
        """``[n, m]`` for gradients with leaves ``[n, *p]``."""
        return with_prior(self.slope * self.linear(seen), self.log_prior)


@dataclass(frozen=True, eq=False)
class Solver:
    """Discriminants fitted on parts of the shadow records, whose inner products are known.

    Attributes:
        records: gradients ``G [n, D]``, less their origin.
        gram: ``G @ G.T``.
        codes: the secrets ``[n]``.
    """

    records: "RecordGradients"
    gram: Floats
    codes: Ints

    @classmethod
    def prepare(cls, shadow: Shadow) -> "Solver":
        """All records of the shadow."""
        records = RecordGradients(shadow)
        codes = shadow.data.secrets[shadow.secret].cpu().numpy()
        return cls(records, records.gram(), codes)

    def solve(self, rows: Ints, ridges: tuple[float, ...]) -> list[Linear]:
        """Fit on ``rows``; the scores are log-likelihoods of batches, one ``Linear`` a ridge."""
        shadow = self.records.shadow
        noise = record_noise(shadow)
        inside = self.gram[np.ix_(rows, rows)]
        found = solve_dual(Scatter(inside, self.codes[rows], shadow.values), ridges, noise)
        alpha = np.zeros((len(self.codes), len(ridges) * shadow.values))
        alpha[rows] = np.concatenate([each for each, _ in found], axis=1)
        weights = np.split(shadow.batch_size * self.records.combine(alpha), len(ridges), axis=1)
        origin = self.records.origin.double().cpu().numpy()
        return [
            Linear(weight, shadow.batch_size * intercept - origin @ weight)
            for weight, (_, intercept) in zip(weights, found, strict=True)
        ]


def record_noise(shadow: Shadow) -> float:
    """Variance of a coordinate of the defense's noise, at the scale of a single record."""
    return shadow.batch_size * shadow.defense.noise_std**2


def solve_dual(
    scatter: Scatter, ridges: tuple[float, ...], noise: float
) -> list[tuple[Floats, Floats]]:
    """Linear discriminants of all secrets against their mean, one for each ridge.

    With ``mu`` the mean of the group means ``mu_a``, the score of secret a for a gradient g is
    ``(g - mu) @ w_a - (mu_a - mu) @ w_a / 2``, where ``w_a = (S + l I)^-1 (mu_a - mu)``. By the
    Woodbury identity all of it follows from the inner products.

    Args:
        scatter: of the records, by secret.
        ridges: l less the noise, relative to the trace of S.
        noise: variance of a coordinate, at the scale of a single record.

    Returns:
        Pairs of ``alpha [n, m]``, with the weights ``G.T @ alpha``, and intercepts ``[m]``.

    References:
        Hastie, Tibshirani, Friedman, The Elements of Statistical Learning, sections 4.3.1, 18.3.5.

    >>> g, codes = np.array([[0.0], [2.0], [4.0], [6.0]]), np.array([0, 0, 1, 1])
    >>> scatter = Scatter(g @ g.T, codes, 2)
    >>> ((alpha, _),) = solve_dual(scatter, (0.5,), 0.0)  # S = 2, l = 1, mu = 3 -+ 2
    >>> (g.T @ alpha).round(6).tolist()
    [[-0.666667, 0.666667]]
    """
    middle = scatter.groups.mean(axis=1, keepdims=True)
    apart = scatter.groups - middle
    seen = scatter.centre(scatter.gram @ apart) / scatter.freedom
    found = []
    for ridge in ridges:
        total = ridge * scatter.trace + noise
        inner = linalg.solve(scatter.within + total * np.eye(len(seen)), seen, assume_a="pos")
        alpha = (apart - scatter.centre(inner)) / total
        intercept = -((apart / 2 + middle) * (scatter.gram @ alpha)).sum(axis=0)
        found.append((alpha, intercept))
    return found


@dataclass(frozen=True, eq=False)
class RecordGradients:
    """The gradients of the shadow's single records ``G [n, D]``, as they enter the mean.

    Clipped where the defense clips them; kept where they are few, and never held at once where
    they are too large. An origin amid them is subtracted: where they hardly differ, the inner
    products would lose what sets them apart to rounding.
    """

    shadow: Shadow

    @functools.cached_property
    def origin(self) -> Tensor:
        """``[D]``: the mean over the first records."""
        return self._sent(slice(0, min(self._size, ORIGIN_OF, len(self.shadow.data)))).mean(dim=0)

    def products(self, flat: Tensor) -> Floats:
        """``(flat - origin) @ G.T`` for gradients ``flat [k, D]``."""
        flat = flat - self.origin
        parts = [(flat @ block.T).double().cpu().numpy() for _, block in self._blocks(0)]
        return np.concatenate(parts, axis=1)

    def gram(self) -> Floats:
        """``G @ G.T``."""
        n = len(self.shadow.data)
        gram = np.empty((n, n))
        for here, left in self._blocks(0):
            for there, right in self._blocks(here.start, held=(here, left)):
                products = (left @ right.T).double().cpu().numpy()
                gram[here, there] = products
                gram[there, here] = products.T
        return gram

    def combine(self, alpha: Floats) -> Floats:
        """``G.T @ alpha`` for ``alpha [n, k]``."""
        parts = (
            (flat.T @ torch.from_numpy(alpha[rows]).to(flat)).double().cpu().numpy()
            for rows, flat in self._blocks(0)
        )
        total: Floats = sum(parts, start=np.zeros(()))
        return total

    def _blocks(
        self, start: int, held: tuple[slice, Tensor] | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """The records from ``start`` on, in blocks of a quarter of the memory; none made twice."""
        size = self._size
        for first in range(start, len(self.shadow.data), size):
            rows = slice(first, min(first + size, len(self.shadow.data)))
            if len(self.shadow.data) <= size:
                yield rows, self._all
            else:
                yield held if held and held[0] == rows else (rows, self._flat(rows))

    @functools.cached_property
    def _all(self) -> Tensor:
        return self._flat(slice(0, len(self.shadow.data)))

    @property
    def _size(self) -> int:
        """Records of which gradients fit into a quarter of the memory."""
        weights = sum(leaf.numel() * leaf.element_size() for leaf in self.shadow.params.values())
        return max(1, self.shadow.max_bytes // 4 // weights)

    def _flat(self, rows: slice) -> Tensor:
        return self._sent(rows).sub_(self.origin)

    def _sent(self, rows: slice) -> Tensor:
        defense = replace(self.shadow.defense, update=Identity(), learn=None)
        alone = replace(self.shadow, defense=defense)
        index = np.arange(rows.start, rows.stop)[:, None]
        return torch.cat([Flat()(grads) for grads in alone.gradients(index)])
