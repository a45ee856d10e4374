"""A classifier on features of gradients, calibrated on held-out shadow records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, fit_slope, hold_out, two_sided
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import View


class RegressionSettings(Protocol):
    """An attack that ends in a calibrated classifier."""

    @property
    def batches(self) -> int:
        """Bootstrapped shadow batches, and as many to judge."""
        ...

    @property
    def folds(self) -> int:
        """Of the shadow records, for the calibration."""
        ...


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted classifier on features of gradients."""

    view: View
    model: Any

    def __call__(self, seen: Grads) -> NDArray[np.float64]:
        """Log-odds ``[n, m]``, not calibrated."""
        features = self.view(seen).cpu().numpy().copy()  # a model may work in place
        return two_sided(self.model.decision_function(features))


@dataclass(frozen=True, eq=False)
class FittedRegression:
    """A fitted ``Logistic`` or ``Energies``.

    Attributes:
        settings: of the attack.
        regression: fitted on all shadow records.
        slope: of its log-odds.
        log_prior: ``[m]``.
        held_out: log-odds of held-out shadow batches.
    """

    settings: RegressionSettings
    regression: Regression
    slope: float
    log_prior: NDArray[np.float64]
    held_out: HeldOut

    @classmethod
    def calibrate(
        cls,
        settings: RegressionSettings,
        regress: Callable[[Shadow], Regression],
        shadow: Shadow,
        log_prior: NDArray[np.float64],
    ) -> "FittedRegression":
        """Fit one slope on held-out shadow records, then the classifier on all."""
        held_out = hold_out(shadow, regress, folds=settings.folds, batches=settings.batches)
        slope = fit_slope(held_out)
        scaled = HeldOut(slope * held_out.log_odds, held_out.secret)
        return cls(settings, regress(shadow), slope, log_prior, scaled)

    @property
    def details(self) -> str:
        """The settings and the calibrated slope."""
        return f"{self.settings!r}, slope {self.slope:.3f}"

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        return with_prior(self.slope * self.regression(seen), self.log_prior)
