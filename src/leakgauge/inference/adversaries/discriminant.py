"""Fisher's linear discriminant on the gradients of single records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from leakgauge.core.checks import require_positive
from leakgauge.defenses import Defense
from leakgauge.inference.adversaries.calibration import (
    Calibrated,
    HeldOut,
    fit_slope,
    held_out_folds,
    log_loss,
)
from leakgauge.inference.adversaries.linear import LinearScores, Solver
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats

RIDGES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)
"""Ridges tried by default, relative to the mean squared norm of a centred record gradient."""


@dataclass(frozen=True)
class Discriminant:
    """The likelihood ratio of Gaussian batches, learned from single records.

    The gradient of a batch of B records with secret a is taken as Gaussian, with mean ``mu_a`` and
    covariance ``S / B + noise_std**2 I``: its log-likelihood is linear in the gradient, apart from
    a term that all secrets share. ``mu_a`` and ``S`` (within the groups) are those of the shadow
    records' own gradients: no batch is bootstrapped, and n records in D >> n dimensions need only
    an n x n matrix. A ridge on ``S`` compensates for the small number of records.

    Records are clipped as the shadow's defense clips them, and the Gaussian noise that it adds
    takes the place of the ridge; so this is the adversary for noisy gradients. Other effects of
    the defense enter only through held-out batches, which select the ridge and the slope.
    The batch gradient must be the mean over its records.

    Attributes:
        ridge: added to ``S``, relative to the mean squared norm of a record's gradient in its
            group; None picks the one of ``RIDGES`` with the smallest log loss on held-out records.
        assume: the defense that the fit assumes; None for that of the shadow.
        batches: number of held-out shadow batches.
        folds: number of folds of the shadow records.
    """

    ridge: float | None = None
    assume: Defense | None = None
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "discriminant"

    def __post_init__(self) -> None:
        if self.ridge is not None:
            require_positive(self.ridge, "ridge")
        require_positive(self.batches, "number of held-out shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def assumed(self, shadow: Shadow) -> Shadow:
        """Return the shadow under the assumed defense."""
        return shadow if self.assume is None else replace(shadow, defense=self.assume)

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> Calibrated:
        """Pick the ridge and calibrate on held-out shadow records, then fit on all.

        Nothing is drawn from ``rng``: the fit is a function of the shadow.
        """
        assumed = self.assumed(shadow)
        ridges = RIDGES if self.ridge is None else (self.ridge,)
        solver = Solver.prepare(assumed)
        scores, truth = [], []
        for part in held_out_folds(assumed, folds=self.folds, batches=self.batches):
            every = LinearScores.concatenate(solver.solve(part.rest, ridges))
            scores += [every(grads) for grads in assumed.held_out_gradients(part.batches)]
            truth.append(part.secret)
        secret = np.concatenate(truth)
        by_ridge = np.split(np.concatenate(scores), len(ridges), axis=1)
        trials = [HeldOut(one, secret) for one in by_ridge]
        best, slope = pick(trials)
        (linear,) = solver.solve(np.arange(len(assumed.data)), (ridges[best],))
        details = f"{self!r}, ridge {ridges[best]:g}, slope {slope:.3f}"
        return Calibrated(details, linear, slope, log_prior, trials[best].scaled(slope))


def pick(tried: Sequence[HeldOut]) -> tuple[int, float]:
    """Return the index with the smallest log loss on held-out batches, and its slope."""
    slopes = [fit_slope(one) for one in tried]
    losses = [log_loss(one, slope) for one, slope in zip(tried, slopes, strict=True)]
    best = int(np.argmin(losses))
    return best, slopes[best]
