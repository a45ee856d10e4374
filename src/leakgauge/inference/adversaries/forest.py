"""The adversary of Li et al., CCS 2024, section 5.1.3: a random forest on pooled gradients."""

import copy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import smoothed_votes
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import TABLE_KERNEL, Flat, MaxPool, View, kernel_for


@dataclass(frozen=True)
class Forest:
    """Random forest on max-pooled gradients of bootstrapped shadow batches.

    A posterior of 0 in one round would overrule all other rounds, and a forest gives it whenever
    its trees agree. The T trees are therefore taken as T votes and smoothed as the posterior mean
    under a Jeffreys prior does: ``(T p + 1/2) / (T + m/2)``. The paper does not say what it does.

    Attributes:
        trees: 50 in the paper.
        kernel: of the 1-d max-pooling; None for the paper's, by the data: see ``kernel_for``.
        batches: bootstrapped shadow batches; the paper does not give their number.

    References:
        Li et al., CCS 2024, sections 4.1 and 5.1.3.
    """

    trees: int = 50
    kernel: int | None = None
    batches: int = 2000
    name: ClassVar[str] = "forest"

    def __post_init__(self) -> None:
        require_positive(self.trees, "number of trees")
        if self.kernel is not None:
            require_positive(self.kernel, "pooling kernel")
        require_positive(self.batches, "number of shadow batches")

    def of_fold(self, folds: int) -> "Forest":
        """Return the forest that is grown on a fold: all of them have as many trees as this one.

        So what it costs to judge held-out batches is what it costs to fit.
        """
        return replace(self, trees=-(-self.trees // folds))

    def for_records(self, x: Tensor) -> "Forest":
        """Return this forest with the paper's kernel for records ``[n, ...]``, if it has none."""
        if self.kernel is not None:
            return self
        one = copy.copy(self)  # with its name, which may be one that the user typed
        object.__setattr__(one, "kernel", kernel_for(x))
        return one

    @property
    def view(self) -> MaxPool:
        """Gradients to features; for a table where the records are not known yet."""
        return MaxPool(self.kernel or TABLE_KERNEL)

    @property
    def kept(self) -> MaxPool:
        """What is kept of every shadow batch."""
        return self.view

    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> "FittedForest":
        """Fit on balanced bootstrapped batches at this round's parameters (section 4.1)."""
        one = self.for_records(shadow.data.x)
        features, secret = shadow.observe(one.batches, view=one.view)
        return FittedForest.grow(one, one.view, features, secret, log_prior, rng=rng)


class ForestSettings(Protocol):
    """An attack that ends in a forest."""

    @property
    def trees(self) -> int:
        """The number of trees."""
        ...


@dataclass(frozen=True, eq=False)
class FittedForest:
    """A fitted ``Forest``, or another attack that grows one on features of its own."""

    settings: ForestSettings
    view: View
    model: Any
    log_prior: NDArray[np.float64]

    @classmethod
    def grow(
        cls,
        settings: ForestSettings,
        view: View,
        features: NDArray[np.float32],
        secret: NDArray[np.int64],
        log_prior: NDArray[np.float64],
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

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        share = self.model.predict_proba(self.view(seen).cpu().numpy())
        return with_prior(smoothed_votes(share, self.settings.trees), self.log_prior)


LARGEST = 1e30
"""Well within single precision, in which trees compare."""


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
        """From gradients ``[n, D]``, which it centres in place; at most ``components`` axes."""
        mean = flat.mean(dim=0)
        _, _, axes = randomized_svd(
            flat.sub_(mean).cpu().numpy(),
            min(components, *flat.shape),
            n_iter=2,  # the leading components need no more
            random_state=int(rng.integers(2**31)),
        )
        return cls(mean.double(), torch.from_numpy(axes.T.copy()).to(mean.double()))

    def __call__(self, grads: Grads) -> Tensor:
        """Features ``[n, k]``, within what a forest takes."""
        features = (Flat()(grads).double().to(self.mean) - self.mean) @ self.axes
        return features.clamp(-LARGEST, LARGEST)


@dataclass(frozen=True)
class PcaForest:
    """Random forest on the leading principal components of shadow batches' gradients.

    The paper reduces gradients to 50 principal dimensions in place of the max-pooling, and does not
    say on which gradients the axes are learned. Here they are learned without the Gaussian noise of
    the shadow's defense, which an adversary can leave out of its own gradients, and so keep most of
    the noise out; the forest is fitted on what is seen, noise included.

    Attributes:
        components: kept, at most; 50 in the paper.
        trees: 50 in the paper.
        batches: bootstrapped shadow batches; the paper does not give their number.

    References:
        Li et al., CCS 2024, section 6.2 and Table 2.
    """

    components: int = 50
    trees: int = 50
    batches: int = 2000
    name: ClassVar[str] = "pca-forest"

    def __post_init__(self) -> None:
        require_positive(self.components, "number of components")
        require_positive(self.trees, "number of trees")
        require_positive(self.batches, "number of shadow batches")

    @property
    def view(self) -> View:
        """Gradients to what the axes are learned on."""
        return Flat()

    @property
    def kept(self) -> View:
        """What is kept of every shadow batch."""
        return self.view

    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> FittedForest:
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
