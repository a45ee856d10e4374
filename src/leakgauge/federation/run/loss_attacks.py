"""Attacks on membership that read the loss before and after a client's training."""

from dataclasses import dataclass
from typing import ClassVar

from leakgauge.membership.adversaries.adversary import Floats, Known, Needs
from leakgauge.membership.adversaries.thresholds import Threshold, fit_threshold
from leakgauge.membership.observation import Observed


@dataclass(frozen=True)
class LossAfter:
    """A low loss after the training means member (Yeom et al., CSF 2018)."""

    name: ClassVar[str] = "loss-after"
    needs: ClassVar[Needs] = Needs()

    def fit(self, known: Known, *, seed: int) -> Threshold:
        """Fit the threshold that is best on known records."""
        return fit_threshold(after, known.fitting, known.validation)


@dataclass(frozen=True)
class LossDrop:
    """A loss that falls far during the training means member; easy records fall little.

    The model before stands for one that was trained without the client in this round.
    """

    name: ClassVar[str] = "loss-drop"
    needs: ClassVar[Needs] = Needs()

    def fit(self, known: Known, *, seed: int) -> Threshold:
        """Fit the threshold that is best on known records."""
        return fit_threshold(drop, known.fitting, known.validation)


def after(records: Observed) -> Floats:
    """Return minus the log loss at the last snapshot ``[n]``."""
    values: Floats = -records.log_loss[:, -1].numpy()
    return values


def drop(records: Observed) -> Floats:
    """Return how far the log loss falls from the first to the last snapshot ``[n]``."""
    values: Floats = (records.log_loss[:, 0] - records.log_loss[:, -1]).numpy()
    return values


OWN = {one.name: one for one in (LossAfter(), LossDrop())}
"""By name; they are played beside those of the question of membership."""
