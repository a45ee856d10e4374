"""An adversary that uses the size of a gradient's parts, not their signs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from leakgauge.core.checks import require_positive
from leakgauge.core.types import Grads
from leakgauge.gradients.flattening import flat_leaf
from leakgauge.inference.adversaries.calibration import Calibrated, calibrate
from leakgauge.inference.adversaries.logistic import Regression, regressed
from leakgauge.inference.adversaries.shadow import Shadow
from leakgauge.inference.adversaries.views import View, small_leaves
from leakgauge.results.statistics import Floats


@dataclass(frozen=True)
class EnergyView:
    """Log energies (squared norms) of the gradient's parts.

    The features are the energy of each input column of the first leaf with two or more axes,
    which multiplies the inputs; the energy of each output row of every leaf (of each coordinate
    of a leaf with one axis); and the small leaves themselves, such as the last bias.

    If a batch has no record of a category, the gradient of its input column is 0. So an energy
    is at least ``floor`` times the mean energy of the leaf's parts.

    Attributes:
        floor: the least energy, relative to the mean.
        most: maximum number of features; neighbouring parts are summed to stay below it.

    >>> view = EnergyView(floor=1e-9)
    >>> weight, bias = torch.tensor([[[3.0, 0.0], [4.0, 1.0]]]), torch.tensor([[2.0, 1.0]])
    >>> view({"weight": weight, "bias": bias})[0, :6].exp().round(decimals=3).tolist()
    [25.0, 1.0, 9.0, 17.0, 4.0, 1.0]
    >>> view({"weight": weight, "bias": bias})[0, 6:].tolist()  # leaves of up to 16 numbers
    [3.0, 0.0, 4.0, 1.0, 2.0, 1.0]
    """

    floor: float = 1e-5
    most: int = 2048

    def __post_init__(self) -> None:
        require_positive(self.floor, "least energy")
        require_positive(self.most, "number of features")

    def __call__(self, grads: Grads) -> Tensor:
        """Return features ``[n, D]``."""
        first = next((name for name, leaf in grads.items() if leaf.dim() > 2), None)
        each = max(1, self.most // (len(grads) + 1))
        parts = []
        for name, leaf in grads.items():
            flat = flat_leaf(leaf)
            scale = torch.maximum(flat.amax(dim=1), -flat.amin(dim=1))
            scale = scale.clamp_min(torch.finfo(leaf.dtype).tiny)  # then no square overflows
            parted = leaf.flatten(2) if leaf.dim() > 2 else flat[:, :, None]
            squares = (parted / scale[:, None, None]).square_()
            for axis in (1, 2) if name == first else (2,):
                energy = squares.sum(dim=axis)
                parts.append(self._log(energy, each) + 2 * scale.log()[:, None])
        return torch.cat([*parts, *small_leaves(grads)], dim=1)

    def _log(self, energy: Tensor, most: int) -> Tensor:
        width = -(-energy.shape[1] // most)
        if width > 1:
            padded = torch.nn.functional.pad(energy, (0, -energy.shape[1] % width))
            energy = padded.view(len(energy), -1, width).sum(2)
        least = self.floor * energy.mean(dim=1, keepdim=True)
        return (energy + least).clamp_min(torch.finfo(energy.dtype).tiny).log()


@dataclass(frozen=True)
class Energies:
    """Logistic regression on log energies: the strongest attack on undefended gradients.

    As a model becomes calibrated, the mean gradient of every group of records goes to 0, and so
    does the signal of a linear adversary. The energies stay: a record moves the weights of its
    inputs, in whichever direction. Under strong noise they carry no information.

    The log-odds are scaled by one slope, fitted on held-out shadow records.

    Attributes:
        inverse_penalty: scikit-learn's C, on standardised features.
        batches: number of bootstrapped shadow batches.
        folds: number of folds of the shadow records for the calibration.
        view: maps gradients to features.
    """

    inverse_penalty: float = 0.01
    batches: int = 2000
    folds: int = 3
    view: View = EnergyView()
    name: ClassVar[str] = "energies"

    def __post_init__(self) -> None:
        require_positive(self.inverse_penalty, "inverse penalty")
        require_positive(self.batches, "number of shadow batches")
        require_positive(self.folds - 1, "number of folds less one")

    def fit(self, shadow: Shadow, log_prior: Floats, *, rng: np.random.Generator) -> Calibrated:
        """Calibrate on held-out shadow records, then fit on all."""
        return calibrate(
            self, self.regress, shadow, log_prior, folds=self.folds, batches=self.batches
        )

    def regress(self, shadow: Shadow) -> Regression:
        """Return the regression on shadow batches, not calibrated."""
        return regressed(shadow, self.view, self.inverse_penalty, self.batches)
