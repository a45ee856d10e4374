"""An attack that picks among others, on shadow data alone."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from leakgauge.core.checks import require, require_positive
from leakgauge.core.types import Grads
from leakgauge.inference.adversaries.adversary import Adversary, Attack
from leakgauge.inference.adversaries.calibration import HeldOut, log_loss
from leakgauge.inference.adversaries.discriminant import Discriminant
from leakgauge.inference.adversaries.energies import Energies
from leakgauge.inference.adversaries.forest import Forest
from leakgauge.inference.adversaries.logistic import Logistic
from leakgauge.inference.adversaries.pca_forest import PcaForest
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.stacking import judge_held_out


@dataclass(frozen=True)
class Auto:
    """In each round, the candidate with the smallest log loss on held-out shadow records.

    The folds part the shadow records (and users), so no record of a judged batch was fitted on.
    The log loss is what the sum over rounds depends on: it wants probabilities that rank well and
    are neither timid nor overconfident.

    Attributes:
        candidates: the attacks to choose from; the first wins a tie.
        folds: record-wise folds.
        batches: judged batches, over all folds.
    """

    candidates: tuple[Attack, ...] = (
        Energies(),
        Discriminant(),
        Logistic(),
        Forest(),
        PcaForest(components=16),
    )
    folds: int = 3
    batches: int = 2000
    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        require(len(self.candidates) > 0, "auto has no candidates; pass at least one attack")
        require_positive(self.folds - 1, "number of folds less one")
        require_positive(self.batches, "number of judged batches")

    def fit(
        self, shadow: Shadow, log_prior: NDArray[np.float64], *, rng: np.random.Generator
    ) -> "FittedAuto":
        """Fit each candidate, judge it on held-out shadow records, keep the best."""
        losses, best = [], None
        for attack in self.candidates:
            fitted = attack.fit(shadow, log_prior, rng=rng)
            held_out = judge_held_out(
                attack, fitted, shadow, folds=self.folds, batches=self.batches, rng=rng
            )
            losses.append(log_loss(held_out))
            if best is None or losses[-1] < min(losses[:-1]):
                best = attack.name, fitted, held_out
        assert best is not None
        losses_text = ", ".join(
            f"{attack.name} {loss:.4f}"
            for attack, loss in zip(self.candidates, losses, strict=True)
        )
        return FittedAuto(*best, losses_text)


@dataclass(frozen=True, eq=False)
class FittedAuto:
    """The adversary that ``Auto`` picks, fitted.

    Attributes:
        picked: its name.
        adversary: itself.
        held_out: log-odds of held-out shadow batches.
        losses: of all candidates, in words.
    """

    picked: str
    adversary: Adversary
    held_out: HeldOut
    losses: str

    @property
    def details(self) -> str:
        """The picked adversary and the cross-validated log losses, in one line."""
        return f"picked {self.picked} (log loss on held-out shadow records: {self.losses})"

    def log_posterior(self, seen: Grads) -> NDArray[np.float64]:
        """Return the posterior of the picked adversary."""
        return self.adversary.log_posterior(seen)
