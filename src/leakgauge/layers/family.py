"""The predictive family: attacks among which the usable information takes the best.

All use one view of the gradients, so that one pass computes their features. They do not calibrate
themselves: ``layers.information`` calibrates all of them on batches that none was fitted on.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import smoothed_votes, two_sided
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.standardising import StandardiseInPlace
from leakgauge.inference.adversaries.views import FlattenView, View
from leakgauge.results.statistics import Floats, within_deviations

LEAST = 1e-6
"""Smallest probability of a network, so that no log is infinite."""

_POSITIVE = {
    "batches": "number of shadow batches",
    "trees": "number of trees",
    "components": "number of components",
    "hidden": "width of the hidden layer",
    "inverse_penalty": "inverse penalty",
    "penalty": "penalty",
}
"""Settings that must be above 0, with their names in messages."""


@dataclass(frozen=True)
class Member(ABC):
    """A classifier of gradients of bootstrapped shadow batches.

    Attributes:
        batches: number of bootstrapped shadow batches.
        view: map from gradients to features.
    """

    batches: int = 1000
    view: View = field(default_factory=FlattenView)
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, words in _POSITIVE.items():
            if hasattr(self, name):
                require_positive(getattr(self, name), words)

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> "FittedMember":
        """Fit on balanced bootstrapped batches, which all members share."""
        features, secret = shadow.observe(self.batches, view=self.view)
        state = int(rng.integers(2**31))
        model = self.classifier(features.shape, state)
        with warnings.catch_warnings():  # a network trains for a set number of epochs
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features.copy(), secret)
        return FittedMember(self, model, log_prior)

    @abstractmethod
    def classifier(self, shape: tuple[int, ...], state: int) -> Any:
        """Return a scikit-learn classifier for features of ``shape`` (n, D)."""

    @abstractmethod
    def log_odds(self, model: Any, features: NDArray[np.float32]) -> Floats:
        """Return log-odds ``[n, m]`` up to a constant a row, not calibrated."""


@dataclass(frozen=True)
class VotingForest(Member):
    """A random forest, the attack of Mo et al., section 4.2.

    Attributes:
        trees: number of trees; 50 as in Melis et al., S&P 2019, as the paper names no number.
    """

    trees: int = 50
    name: ClassVar[str] = "forest"

    def classifier(self, shape: tuple[int, ...], state: int) -> RandomForestClassifier:
        """Return a forest."""
        return RandomForestClassifier(self.trees, random_state=state)

    def log_odds(self, model: Any, features: NDArray[np.float32]) -> Floats:
        """Return the log of the smoothed shares of the votes."""
        return smoothed_votes(model.predict_proba(features), self.trees)


@dataclass(frozen=True)
class LinearOnComponents(Member):
    """Logistic regression on the leading principal components.

    Attributes:
        components: largest number of kept principal components.
        inverse_penalty: scikit-learn's C.
    """

    components: int = 64
    inverse_penalty: float = 0.1
    name: ClassVar[str] = "logistic"

    def classifier(self, shape: tuple[int, ...], state: int) -> Any:
        """Return a pipeline that ends in logistic regression."""
        last = LogisticRegression(C=self.inverse_penalty, max_iter=1000)
        return on_components(self.components, shape, state, last)

    def log_odds(self, model: Any, features: NDArray[np.float32]) -> Floats:
        """Return the decision function."""
        return two_sided(model.decision_function(features.copy()))


@dataclass(frozen=True)
class NetworkOnComponents(Member):
    """A network with one hidden layer on the leading principal components.

    Mo et al., Figure 5, attack with "a DNN" and do not describe it.

    Attributes:
        components: largest number of kept principal components.
        hidden: width of the hidden layer.
        penalty: penalty on the squared weights; scikit-learn's alpha.
    """

    components: int = 64
    hidden: int = 64
    penalty: float = 1.0
    name: ClassVar[str] = "network"

    def classifier(self, shape: tuple[int, ...], state: int) -> Any:
        """Return a pipeline that ends in a network."""
        last = MLPClassifier(
            (self.hidden,), alpha=self.penalty, max_iter=40, n_iter_no_change=40, random_state=state
        )
        return on_components(self.components, shape, state, last)

    def log_odds(self, model: Any, features: NDArray[np.float32]) -> Floats:
        """Return the log of the softmax."""
        log: Floats = np.log(model.predict_proba(features.copy()).clip(LEAST, 1.0))
        return log


def on_components(components: int, shape: tuple[int, ...], state: int, last: Any) -> Any:
    """Return a classifier behind standardisation and PCA of features of ``shape`` (n, D)."""
    pca = PCA(
        min(components, *shape),
        svd_solver="randomized",
        iterated_power=2,  # the leading components need no more, and the default costs half
        random_state=state,
    )
    bounded = FunctionTransformer(within_deviations)
    return make_pipeline(StandardiseInPlace(), bounded, pca, StandardScaler(), last)


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A fitted ``Member``."""

    settings: Member
    model: Any
    log_prior: Floats

    @property
    def details(self) -> str:
        """The settings in one line."""
        return repr(self.settings)

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        features = self.settings.view(seen).cpu().numpy()
        return with_prior(self.settings.log_odds(self.model, features), self.log_prior)
