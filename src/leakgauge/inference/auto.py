"""An attack that picks among others, on shadow data alone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from leakgauge.checks import require, require_positive
from leakgauge.inference.adversary import Adversary, Attack
from leakgauge.inference.forest import Forest
from leakgauge.inference.logistic import Logistic
from leakgauge.inference.shadow import Shadow
from leakgauge.types import Grads


@dataclass(frozen=True)
class Auto:
    """In each round, the candidate with the smallest cross-validated log loss.

    The folds part the shadow records (and persons), so no record of a judged batch was fitted on.
    The log loss is what the sum over rounds depends on: it wants probabilities that rank well and
    are neither timid nor overconfident.

    Attributes:
        candidates: the attacks to choose from; the first wins a tie.
        folds: record-wise folds.
        batches: judged batches, over all folds.
    """

    candidates: tuple[Attack, ...] = (Forest(), Logistic())
    folds: int = 3
    batches: int = 1500
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        require(len(self.candidates) > 0, "auto has no candidates; pass at least one attack")
        require_positive(self.folds - 1, "number of folds less one")
        require_positive(self.batches, "number of judged batches")

    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> "FittedAuto":
        """Judge each candidate on held-out shadow records, then fit the best on all."""
        uniform = np.full_like(log_prior, -np.log(len(log_prior)))
        losses = np.zeros(len(self.candidates))
        for rest, fold in shadow.folds(self.folds, rng=rng):
            rows, secret = fold.draw(self.batches // self.folds, rng=rng)
            fitted = [attack.fit(rest, uniform, rng=rng) for attack in self.candidates]
            posteriors: list[list[NDArray[np.float64]]] = [[] for _ in fitted]
            for grads in fold.gradients(rows):
                for kept, adversary in zip(posteriors, fitted, strict=True):
                    kept.append(adversary.log_posterior(grads))
            for index, kept in enumerate(posteriors):
                losses[index] -= np.concatenate(kept)[np.arange(len(secret)), secret].mean()
        losses /= self.folds
        best = self.candidates[int(losses.argmin())]
        scores = ", ".join(
            f"{attack.name} {loss:.4f}"
            for attack, loss in zip(self.candidates, losses, strict=True)
        )
        return FittedAuto(best.name, best.fit(shadow, log_prior, rng=rng), scores)


@dataclass(frozen=True, eq=False)
class FittedAuto:
    """The adversary that was picked."""

    picked: str
    adversary: Adversary
    scores: str

    @property
    def details(self) -> str:
        """What was picked, and the cross-validated log losses."""
        return f"picked {self.picked} (log loss on held-out shadow records: {self.scores})"

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """The picked adversary's."""
        return self.adversary.log_posterior(seen)
