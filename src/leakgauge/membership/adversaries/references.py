"""Attacks that compare the model with others that were trained without the record."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from leakgauge.core.checks import require, require_count
from leakgauge.membership.adversaries.adversary import Floats, Known, Needs
from leakgauge.membership.adversaries.thresholds import Threshold, fit_threshold
from leakgauge.membership.observation import Observed


@dataclass(frozen=True)
class RMIA:
    """Offline RMIA: likelihood ratios of a record against those of other records.

    A record's ratio is its label's probability at the model over its mean at reference models,
    which are trained on other records of the same kind. The score is the share of known
    non-members whose ratio is smaller by the factor ``gamma``; the threshold is best on known
    records. Reference models see no record that is judged (offline), so the mean over models that
    were trained with the record is estimated as in the paper, with ``a``.

    Attributes:
        references: number of reference models.
        gamma: factor.
        a: of the estimate; 0 takes the mean of 1 and the reference models' mean.

    References:
        Zarifzadeh, Liu and Shokri, Low-Cost High-Power Membership Inference Attacks, ICML 2024,
        Eq. 9 and Appendix B.2.2.
    """

    references: int = 2
    gamma: float = 1.0
    a: float = 0.3
    name: ClassVar[str] = "rmia"

    def __post_init__(self) -> None:
        require_count(self.references, "number of references of rmia")
        require(self.gamma > 0, f"gamma of rmia is {self.gamma:g}; expected a number above 0")
        require(0 <= self.a <= 1, f"a of rmia is {self.a:g}; expected a number from 0 to 1")

    @property
    def needs(self) -> Needs:
        """What must be observed."""
        return Needs(references=self.references)

    def fit(self, known: Known, *, seed: int) -> Threshold:
        """Take the known non-members as the population, and fit the threshold."""
        outside = torch.from_numpy(np.flatnonzero(~known.fitting.member))
        others = known.fitting.records.rows(outside)
        population = np.sort(self._log_ratio(others)) + np.log(self.gamma)

        def score(records: Observed) -> Floats:
            below = np.searchsorted(population, self._log_ratio(records), side="right")
            share: Floats = below / len(population)
            return share

        return fit_threshold(score, known.validation)

    def _log_ratio(self, records: Observed) -> Floats:
        """Return the log ratio of the label's probability ``[n]``."""
        mean = records.references.exp().mean(1).numpy()
        both = ((1 + self.a) * mean + (1 - self.a)) / 2
        ratio: Floats = -np.exp(records.log_loss[:, -1].numpy()) - np.log(both)
        return ratio
