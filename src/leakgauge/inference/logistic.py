"""Regularised logistic regression on standardised, PCA-reduced gradients, calibrated."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from leakgauge.checks import require_positive
from leakgauge.inference.adversary import with_prior
from leakgauge.inference.calibration import HeldOut, Judge, fit_slope, hold_out, two_sided
from leakgauge.inference.shadow import Shadow
from leakgauge.inference.views import Flat, View, within_deviations
from leakgauge.types import Grads


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on the leading principal components of the gradient.

    Coordinates are standardised on the shadow batches, reduced by PCA and standardised again. The
    classifier is overconfident on records it has not seen, so one slope for its log-odds is fitted
    on shadow records that were held out (no intercept: a small shadow set does not determine it).

    Attributes:
        components: kept principal components, at most.
        inverse_penalty: scikit-learn's C.
        batches: bootstrapped shadow batches.
        folds: record-wise folds for the calibration.
    """

    components: int = 64
    inverse_penalty: float = 0.1
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "logistic"

    def __post_init__(self) -> None:
        require_positive(self.components, "number of components")
        require_positive(self.inverse_penalty, "inverse penalty")
        require_positive(self.batches, "number of shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> "FittedLogistic":
        """Calibrate on held-out shadow records, then fit on all."""
        view = Flat()

        def judge_of(bench: Shadow) -> Judge:
            model = self._regress(bench, view, rng)
            return lambda grads: _said(model, view, grads)

        held_out = hold_out(shadow, judge_of, folds=self.folds, batches=self.batches)
        slope = fit_slope(held_out)
        scaled = HeldOut(slope * held_out.log_odds, held_out.secret)
        return FittedLogistic(
            self, view, self._regress(shadow, view, rng), slope, log_prior, scaled
        )

    def _regress(self, shadow: Shadow, view: View, rng: np.random.Generator) -> Any:
        features, secret = shadow.observe(self.batches, view=view, rng=rng)
        components = min(self.components, *features.shape)
        pca = PCA(
            components,
            svd_solver="randomized",
            iterated_power=2,  # the leading components need no more, and the default costs half
            random_state=int(rng.integers(2**31)),
        )
        regression = LogisticRegression(C=self.inverse_penalty, max_iter=1000)
        bounded = FunctionTransformer(within_deviations)
        return make_pipeline(StandardScaler(), bounded, pca, StandardScaler(), regression).fit(
            features, secret
        )


@dataclass(frozen=True, eq=False)
class FittedLogistic:
    """A fitted ``Logistic``.

    Attributes:
        settings: what was asked for.
        view: gradients to features; ``model`` judges these.
        slope: of its log-odds.
        log_prior: ``[m]``.
        held_out: what such adversaries said of held-out shadow batches.
    """

    settings: Logistic
    view: View
    model: Any
    slope: float
    log_prior: NDArray[np.float64]
    held_out: HeldOut

    @property
    def details(self) -> str:
        """The settings and the calibrated slope."""
        return f"{self.settings!r}, slope {self.slope:.3f}"

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """``[n, m]`` for gradients with leaves ``[n, *p]``."""
        return with_prior(self.slope * _said(self.model, self.view, seen), self.log_prior)


def _said(model: Any, view: View, grads: Grads) -> NDArray[np.float64]:
    """Log-odds ``[n, m]``, not calibrated."""
    return two_sided(model.decision_function(view(grads).cpu().numpy()))
