"""Trees that are grown without one part of the shadow each, and so judge that part."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from leakgauge.core.checks import require, require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import with_prior
from leakgauge.inference.adversaries.calibration import HeldOut, held_out_folds, smoothed_votes
from leakgauge.inference.adversaries.forest import OnMaxPool, votes
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import View
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class CrossedForest(OnMaxPool):
    """Extremely randomised trees on max-pooled gradients, each grown without one fold.

    The shadow records are split into folds. Each tree is grown on bootstrapped batches of all folds
    but one, and scores held-out batches of that one. All trees together score the trials. A forest
    on the whole shadow would have to be grown once more for each fold to be judged.

    Attributes:
        trees: number of trees of all folds together.
        kernel: width of the 1-d max-pooling; None for that of the paper, see ``kernel_for``.
        batches: number of bootstrapped batches for each fold's trees, and of held-out batches.
        folds: number of folds of the shadow records.

    References:
        Geurts, Ernst and Wehenkel, Extremely randomized trees, Machine Learning 2006.
    """

    trees: int = 51
    kernel: int | None = None
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "crossed-forest"

    def __post_init__(self) -> None:
        if self.kernel is not None:
            require_positive(self.kernel, "pooling kernel")
        require_positive(self.batches, "number of shadow batches")
        require(self.folds >= 2, f"number of folds is {self.folds}; expected 2 or more")
        require(
            self.trees >= self.folds,
            f"number of trees is {self.trees}; expected one for each of {self.folds} folds or more",
        )

    @property
    def each(self) -> int:
        """Number of trees of one fold."""
        return -(-self.trees // self.folds)

    def fit(
        self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator
    ) -> "FittedCrossedForest":
        """Grow the trees of each fold, and score the held-out batches of the fold with them."""
        one = self.for_records(shadow.data.x)
        models, scores, truth = [], [], []
        for part in held_out_folds(shadow, folds=one.folds, batches=one.batches):
            features, secret = shadow.only(part.rest).observe(one.batches, view=one.view)
            trees = ExtraTreesClassifier(one.each, random_state=int(rng.integers(2**31)))
            # A tree reads column by column: with these in a row it grows in a fifth less time.
            models.append(trees.fit(np.asfortranarray(features), secret))
            for grads in shadow.held_out_gradients(part.batches):
                share = votes(trees, one.view(grads).cpu().numpy())
                scores.append(smoothed_votes(share, one.each))
            truth.append(part.secret)
        held_out = HeldOut(np.concatenate(scores), np.concatenate(truth))
        return FittedCrossedForest(one, one.view, tuple(models), log_prior, held_out)


@dataclass(frozen=True, eq=False)
class FittedCrossedForest:
    """A fitted ``CrossedForest``.

    Attributes:
        settings: settings with the kernel filled in.
        view: maps gradients to features.
        models: the trees of each fold.
        log_prior: ``[m]``.
        held_out: log-odds of held-out shadow batches, by the trees that have not seen their
            records.
    """

    settings: CrossedForest
    view: View
    models: tuple[ExtraTreesClassifier, ...]
    log_prior: Floats
    held_out: HeldOut

    @property
    def details(self) -> str:
        """The settings in one line."""
        return repr(self.settings)

    def log_posterior(self, seen: Grads) -> Floats:
        """Return log posteriors ``[n, m]`` for gradients with leaves ``[n, *p]``."""
        features = self.view(seen).cpu().numpy()
        share = np.mean([votes(one, features) for one in self.models], axis=0)
        count = self.settings.each * self.settings.folds
        return with_prior(smoothed_votes(share, count), self.log_prior)
