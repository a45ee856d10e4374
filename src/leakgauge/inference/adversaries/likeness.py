"""The likeness of two gradients: how probable it is that they come from one user.

Each gradient is reduced to principal components at once. An attack learns a *likeness* of reduced
gradients from the shadow users; a softmax over the m candidates of a trial turns it into a
posterior.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut
from leakgauge.inference.adversaries.pca_forest import Projection
from leakgauge.inference.games.candidates import CandidateAdversary, Candidates

Floats = NDArray[np.float64]

Likeness = Callable[[Floats, Floats], Floats]
"""Reduced gradients, seen ``[n, k]`` and held ``[n, m, k]`` -> log-likelihoods ``[n, m]``, up to a
constant a row."""


@dataclass(frozen=True, eq=False)
class FittedLikeness(CandidateAdversary):
    """A fitted attack that judges candidates by their likeness.

    Attributes:
        settings: the attack.
        view: reduces gradients to principal components.
        likeness: the likeness of reduced gradients.
        slope: the factor of its log-likelihoods.
        log_prior: log P(a) ``[m]``.
        held_out: scaled log-likelihoods of held-out shadow users; None without calibration.
    """

    settings: object
    view: Projection
    likeness: Likeness
    slope: float
    log_prior: Floats
    held_out: HeldOut | None = None

    @property
    def details(self) -> str:
        """The settings and the slope, in one line."""
        return f"{self.settings!r}, slope {self.slope:.3g}"

    def log_posterior(self, seen: Grads, candidates: Candidates) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        observed, held = (self.view(grads).cpu().numpy() for grads in (seen, candidates.grads))
        scores = self.likeness(observed, held[candidates.index.cpu().numpy()])
        return with_prior(self.slope * scores, self.log_prior)
