"""Regularised logistic regression on standardised, PCA-reduced gradients, calibrated."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leakgauge.checks import require_positive
from leakgauge.inference.adversary import with_prior
from leakgauge.inference.shadow import Shadow
from leakgauge.inference.views import Flat, View
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
        held_out = []
        for rest, fold in shadow.folds(self.folds, rng=rng):
            model = self._regress(rest, view, rng)
            features, secret = fold.observe(self.batches // self.folds, view=view, rng=rng)
            held_out.append((_log_odds(model, features), secret))
        log_odds = np.concatenate([scores for scores, _ in held_out])
        slope = fit_slope(log_odds, np.concatenate([secret for _, secret in held_out]))
        return FittedLogistic(self, view, self._regress(shadow, view, rng), slope, log_prior)

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
        return make_pipeline(StandardScaler(), pca, StandardScaler(), regression).fit(
            features, secret
        )


@dataclass(frozen=True, eq=False)
class FittedLogistic:
    """A fitted ``Logistic``."""

    settings: Logistic
    view: View
    model: Any
    slope: float
    log_prior: NDArray[np.float64]

    @property
    def details(self) -> str:
        """The settings and the calibrated slope."""
        return f"{self.settings!r}, slope {self.slope:.3f}"

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """``[n, m]`` for gradients with leaves ``[n, *p]``."""
        log_odds = _log_odds(self.model, self.view(seen).cpu().numpy())
        return with_prior(self.slope * log_odds, self.log_prior)


def _log_odds(model: Any, features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log probabilities ``[n, m]`` up to a constant a row; never infinite, as log(0) would be."""
    decision: NDArray[np.float64] = model.decision_function(features).astype(np.float64)
    return decision if decision.ndim == 2 else np.stack([-decision / 2, decision / 2], axis=1)


def fit_slope(log_odds: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """The s in [0, 2] that maximises the likelihood of ``softmax(s * log_odds)``.

    Temperature scaling (Guo et al., ICML 2017) with s = 1 / T.

    Args:
        log_odds: ``[n, m]``, of records that the classifier was not fitted on.
        truth: ``[n]``.
    """

    def loss(slope: float) -> float:
        scaled = slope * log_odds
        chosen = scaled[np.arange(len(truth)), truth] - special.logsumexp(scaled, axis=1)
        return -float(chosen.mean())

    return float(optimize.minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x)
