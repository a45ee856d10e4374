"""An adversary that reads the batch's mean input from the gradient of the first layer."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from leakgauge.core.checks import require, require_positive
from leakgauge.inference.adversaries.calibration import Calibrated, calibrate
from leakgauge.inference.adversaries.layer_inputs import (
    MOST_INPUTS,
    MOST_OUTPUTS,
    LayerInputs,
    layer_inputs,
)
from leakgauge.inference.adversaries.logistic import Regression, regressed
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class QuotientReader:
    """Logistic regression on what the first layer's gradient shows of the batch's mean input.

    Dividing the gradient of a weight by that of its bias gives a weighted mean of the batch's
    inputs. With two classes the weights have both signs, and a plain mean of the quotients shows
    little; ``LayerInputs`` combines all units into means with positive weights. So this adversary
    finds about what the means of the batch's features tell, although it sees the gradient alone.

    The log-odds are scaled by one slope, fitted on held-out shadow records.

    Attributes:
        inverse_penalty: scikit-learn's C, on standardised features.
        batches: number of bootstrapped shadow batches.
        folds: number of folds of the shadow records for the calibration.
    """

    inverse_penalty: float = 0.01
    batches: int = 2000
    folds: int = 3
    name: ClassVar[str] = "quotients"

    def __post_init__(self) -> None:
        require_positive(self.inverse_penalty, "inverse penalty")
        require_positive(self.batches, "number of shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def view_on(self, shadow: Shadow) -> LayerInputs | None:
        """Return the view for the parameters of a shadow; None if the model has no such layer."""
        return layer_inputs(shadow)

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> Calibrated:
        """Calibrate on held-out shadow records, then fit on all.

        Raises:
            InputError: no layer of the model has a bias, or all of them are too large.
        """
        view = shadow.shared.made(LayerInputs) or self.view_on(shadow)
        require(
            view is not None,
            f"no layer of the model has a bias and at most {MOST_OUTPUTS:,} outputs and "
            f"{MOST_INPUTS:,} inputs, and {self.name!r} divides its gradients; choose another "
            "--adversary",
        )
        assert view is not None
        regress = partial(self._regress, view)
        return calibrate(self, regress, shadow, log_prior, folds=self.folds, batches=self.batches)

    def _regress(self, view: LayerInputs, shadow: Shadow) -> Regression:
        return regressed(shadow, view, self.inverse_penalty, self.batches)
