"""The adversary of Li et al., CCS 2024, Table 2: a random forest on principal components."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.forest import FittedForest
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import Flat, View

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
