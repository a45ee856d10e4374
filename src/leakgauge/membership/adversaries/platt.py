"""Calibration of log odds on records whose membership is known."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from leakgauge.membership.adversaries.adversary import Floats


@dataclass(frozen=True)
class Platt:
    """A rising line from scores to log odds of a record that is as likely a member or not.

    Attributes:
        slope: above 0.
        shift: added after.
    """

    slope: float = 1.0
    shift: float = 0.0

    def __call__(self, scores: Floats) -> Floats:
        """Return the log odds ``[n]``."""
        return self.slope * scores + self.shift


def fit_platt(scores: Floats, member: NDArray[np.bool_]) -> Platt:
    """Return the line that fits known records best; scores as they are where it would fall.

    Args:
        scores: of known records ``[n]``, higher for members.
        member: which of them are members ``[n]``.

    References:
        Platt, Probabilistic outputs for support vector machines, 1999.

    >>> fit_platt(np.array([3.0, 4.0, 5.0, 6.0]), np.array([False, True, False, True])).slope > 0
    True
    """
    middle, width = float(scores.mean()), float(scores.std()) or 1.0
    fitted = LogisticRegression(class_weight="balanced")
    fitted.fit(((scores - middle) / width)[:, None], member)
    slope = float(fitted.coef_[0, 0]) / width
    if slope <= 0:
        return Platt()
    return Platt(slope, float(fitted.intercept_[0]) - slope * middle)
