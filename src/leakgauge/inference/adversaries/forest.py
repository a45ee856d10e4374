"""The forests of Li et al., CCS 2024: on pooled gradients and on principal components."""

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import smoothed_votes
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import (
    TABLE_KERNEL,
    FlattenView,
    MaxPool,
    View,
    kernel_for,
)
from leakgauge.results.statistics import Floats, Ints


class OnMaxPool:
    """Settings of a forest on max-pooled gradients."""

    kernel: int | None
    whole: bool = False

    def for_records(self, x: Tensor) -> Self:
        """Return this forest with the paper's kernel for records ``[n, ...]``, if it has none."""
        if self.kernel is not None:
            return self
        one = copy.copy(self)  # keeps a name that the user typed
        object.__setattr__(one, "kernel", kernel_for(x))
        return one

    @property
    def view(self) -> MaxPool:
        """Function from gradients to features; that of a table if the records are not known yet."""
        return MaxPool(self.kernel or TABLE_KERNEL, self.whole)

    kept = view
    """Function from gradients to the features that are kept of every shadow batch."""


@dataclass(frozen=True)
class Forest(OnMaxPool):
    """Random forest on max-pooled gradients of bootstrapped shadow batches.

    A posterior of 0 in one round would overrule all other rounds, and a forest returns 0 whenever
    its trees agree. The T trees therefore count as T votes, smoothed as in the posterior mean under
    a Jeffreys prior: ``(T p + 1/2) / (T + m/2)``. The paper does not describe its own smoothing.

    Attributes:
        trees: number of trees, 50 in the paper.
        kernel: width of the 1-d max-pooling; None for that of the paper, see ``kernel_for``.
        batches: number of bootstrapped shadow batches; the paper does not state it.
        whole: whether windows of the pooling reach across parameters; see ``MaxPool``.

    References:
        Li et al., CCS 2024, sections 4.1 and 5.1.3.
    """

    trees: int = 50
    kernel: int | None = None
    batches: int = 2000
    whole: bool = False
    name: ClassVar[str] = "forest"

    def __post_init__(self) -> None:
        require_positive(self.trees, "number of trees")
        if self.kernel is not None:
            require_positive(self.kernel, "pooling kernel")
        require_positive(self.batches, "number of shadow batches")

    def of_fold(self, folds: int) -> "Forest":
        """Return the forest of one fold; the forests of all folds have as many trees as this one.

        So scoring held-out batches costs as much as fitting.
        """
        return replace(self, trees=-(-self.trees // folds))

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> "FittedForest":
        """Fit on balanced bootstrapped batches at the parameters of this round (section 4.1)."""
        one = self.for_records(shadow.data.x)
        features, secret = shadow.observe(one.batches, view=one.view)
        return FittedForest.grow(one, one.view, features, secret, log_prior, rng=rng)


@dataclass(frozen=True, eq=False)
class FittedForest:
    """A fitted ``Forest`` or ``PcaForest``."""

    settings: "Forest | PcaForest"
    view: View
    model: Any
    log_prior: Floats

    @classmethod
    def grow(
        cls,
        settings: "Forest | PcaForest",
        view: View,
        features: NDArray[np.float32],
        secret: Ints,
        log_prior: Floats,
        *,
        rng: np.random.Generator,
    ) -> "FittedForest":
        """Fit on features ``[n, D]`` of ``view`` and their secrets ``[n]``."""
        model = RandomForestClassifier(settings.trees, random_state=int(rng.integers(2**31)))
        return cls(settings, view, model.fit(features, secret), log_prior)

    @property
    def details(self) -> str:
        """The settings in one line."""
        return repr(self.settings)

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        share = votes(self.model, self.view(seen).cpu().numpy())
        return with_prior(smoothed_votes(share, self.settings.trees), self.log_prior)


def votes(
    model: RandomForestClassifier | ExtraTreesClassifier, features: NDArray[np.floating]
) -> Floats:
    """Return ``model.predict_proba``, also fast for the few rows of a chunk of large gradients.

    scikit-learn starts a pool of threads for each call, which takes longer than 50 trees do.
    """
    x = np.ascontiguousarray(features, dtype=np.float32)
    if not np.isfinite(x).all():
        return np.asarray(model.predict_proba(features))  # refuses them
    total = sum(tree.tree_.predict(x)[:, : model.n_classes_] for tree in model.estimators_)
    return np.asarray(total, dtype=np.float64) / len(model.estimators_)


LARGEST = 1e30
"""Largest feature: well within single precision, in which trees compare."""


@dataclass(frozen=True, eq=False)
class Projection:
    """Principal components of flattened gradients.

    Attributes:
        mean: ``[D]``, float64.
        axes: ``[D, k]``, orthonormal, float64.

    >>> view = Projection(torch.zeros(2).double(), torch.tensor([[0.0], [1.0]]).double())
    >>> view({"b": torch.tensor([[5.0, 7.0]])}).tolist()
    [[7.0]]
    """

    mean: Tensor
    axes: Tensor

    @classmethod
    def learn(cls, flat: Tensor, components: int, *, rng: np.random.Generator) -> "Projection":
        """Return at most ``components`` axes of gradients ``[n, D]``, centred in place."""
        mean = flat.mean(dim=0)
        _, _, axes = randomized_svd(
            flat.sub_(mean).cpu().numpy(),
            min(components, *flat.shape),
            n_iter=2,  # the leading components need no more
            random_state=int(rng.integers(2**31)),
        )
        return cls(mean.double(), torch.from_numpy(axes.T.copy()).to(mean.double()))

    def __call__(self, grads: Grads) -> Tensor:
        """Return features ``[n, k]``, clamped to the range of a forest."""
        features = (FlattenView()(grads).double().to(self.mean) - self.mean) @ self.axes
        return features.clamp(-LARGEST, LARGEST)


@dataclass(frozen=True)
class PcaForest:
    """Random forest on the leading principal components of shadow batches' gradients.

    The paper reduces gradients to 50 principal dimensions in place of the max-pooling, and does not
    state which gradients the axes are learned from. Here they are learned without the Gaussian
    noise of the defense, which an adversary can leave out of the gradients that it computes; this
    removes most of the noise. The forest is fitted on the noisy gradients.

    Attributes:
        components: maximum number of components, 50 in the paper.
        trees: number of trees, 50 in the paper.
        batches: number of bootstrapped shadow batches; the paper does not state it.
        view: maps gradients to the coordinates that the axes are learned from.
        kept: maps gradients to the features that are kept of every shadow batch.

    References:
        Li et al., CCS 2024, section 6.2 and Table 2.
    """

    components: int = 50
    trees: int = 50
    batches: int = 2000
    name: ClassVar[str] = "pca-forest"
    view: ClassVar[FlattenView] = FlattenView()
    kept: ClassVar[FlattenView] = view

    def __post_init__(self) -> None:
        require_positive(self.components, "number of components")
        require_positive(self.trees, "number of trees")
        require_positive(self.batches, "number of shadow batches")

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> FittedForest:
        """Learn axes and forest on the same balanced bootstrapped batches."""
        noisy = shadow.defense.adds_noise
        clean = replace(shadow, defense=shadow.defense.without_noise()) if noisy else shadow
        flat, secret = clean.observe(self.batches, view=self.view)
        view = Projection.learn(torch.from_numpy(flat.copy()), self.components, rng=rng)
        if noisy:
            features, _ = shadow.observe(self.batches, view=view)
        else:
            features = view({"flat": torch.from_numpy(flat)}).cpu().numpy()
        return FittedForest.grow(self, view, features, secret, log_prior, rng=rng)
