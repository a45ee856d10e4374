"""Attacks on membership that read the loss before and after a client's training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.membership.adversaries.adversary import Floats, Known, Needs
from leakgauge.membership.adversaries.thresholds import Threshold, fit_threshold
from leakgauge.membership.observation import Observed

NOTHING = Needs()
"""What these attacks must be shown beside losses."""


@dataclass(frozen=True)
class LossAfter:
    """A low loss after the training means member (Yeom et al., CSF 2018)."""

    name: str = "loss-after"
    needs: Needs = NOTHING

    def fit(self, known: Known, *, seed: int) -> Threshold:
        """Fit the threshold that is best on known records."""
        return fit_threshold(after, known.fitting, known.validation)


@dataclass(frozen=True)
class LossDrop:
    """A loss that falls far during the training means member; easy records fall little.

    The model before stands for one that was trained without the client in this round.
    """

    name: str = "loss-drop"
    needs: Needs = NOTHING

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


OWN: Mapping[str, Any] = {one.name: one for one in (LossAfter(), LossDrop())}
"""By name; they are played beside those of the question of membership."""
