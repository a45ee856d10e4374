"""Logistic regression on reduced gradients, calibrated on held-out shadow records."""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.calibration import Calibrated, calibrate, two_sided
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.standardising import StandardiseInPlace
from leakgauge.inference.adversaries.views import FlattenView, View
from leakgauge.results.statistics import Floats, Ints, within_deviations

Features = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted classifier on features of gradients."""

    view: View
    model: Any

    def __call__(self, seen: Grads) -> Floats:
        """Return log-odds ``[n, m]``, not calibrated."""
        features = self.view(seen).cpu().numpy().copy()  # a model may work in place
        return two_sided(self.model.decision_function(features))


def regressed(shadow: Shadow, view: View, inverse_penalty: float, batches: int) -> Regression:
    """Return a logistic regression on standardised features of shadow batches, not calibrated.

    Args:
        shadow: the adversary's records and the parameters of the round.
        view: maps gradients to features.
        inverse_penalty: scikit-learn's C.
        batches: number of bootstrapped shadow batches.
    """
    features, secret = shadow.observe(batches, view=view)
    return Regression(view, regression_of(features, secret, inverse_penalty))


def regression_of(features: Features, secret: Ints, inverse_penalty: float) -> Any:
    """Return a fitted logistic regression on standardised features ``[n, D]``."""
    model = make_pipeline(
        FunctionTransformer(np.asarray, kw_args={"dtype": np.float64}),
        StandardScaler(),
        FunctionTransformer(within_deviations),
        LogisticRegression(C=inverse_penalty, max_iter=1000),
    )
    return model.fit(features, secret)


@dataclass(frozen=True)
class Logistic:
    """Logistic regression on the leading principal components of the gradient.

    Coordinates are standardised on the shadow batches, reduced by PCA and standardised again. The
    classifier is overconfident on unseen records, so one slope for its log-odds is fitted on
    held-out shadow records (without an intercept, which a small shadow set does not determine).

    Attributes:
        components: maximum number of principal components.
        inverse_penalty: scikit-learn's C.
        batches: number of bootstrapped shadow batches.
        folds: number of folds of the shadow records for the calibration.
        view: maps gradients to features.
        kept: maps gradients to the features that are kept of every shadow batch.
    """

    components: int = 64
    inverse_penalty: float = 0.1
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "logistic"
    view: ClassVar[FlattenView] = FlattenView()
    kept: ClassVar[FlattenView] = view

    def __post_init__(self) -> None:
        require_positive(self.components, "number of components")
        require_positive(self.inverse_penalty, "inverse penalty")
        require_positive(self.batches, "number of shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> Calibrated:
        """Calibrate on held-out shadow records, then fit on all."""
        fit = partial(self._regress, rng=rng)
        return calibrate(self, fit, shadow, log_prior, folds=self.folds, batches=self.batches)

    def _regress(self, shadow: Shadow, rng: np.random.Generator) -> Regression:
        features, secret = shadow.observe(self.batches, view=self.view)
        features = features.copy()  # other attacks use the same array
        components = min(self.components, *features.shape)
        # In place, as the features may be most of the memory.
        pca = PCA(
            components,
            copy=False,
            svd_solver="randomized",
            iterated_power=2,  # the leading components need no more, and the default costs half
            random_state=int(rng.integers(2**31)),
        )
        regression = LogisticRegression(C=self.inverse_penalty, max_iter=1000)
        bounded = FunctionTransformer(within_deviations)
        first = StandardiseInPlace()
        model = make_pipeline(first, bounded, pca, StandardScaler(), regression)
        return Regression(self.view, model.fit(features, secret))
