"""The records most at risk, by their row number."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy
from numpy.typing import NDArray

from leakgauge.core.files import write_text
from leakgauge.membership.adversaries.adversary import Floats
from leakgauge.membership.adversaries.supervised import Platt, fit_platt
from leakgauge.results.statistics import Ints

AT_RISK_FILE = "at-risk.json"
SIGNIFICANCE = 0.025
"""One side of a 95 % interval: members of the validation records must score higher by this much."""


@dataclass(frozen=True)
class AtRisk:
    """A member that an attack recognises.

    Attributes:
        row: row in the data, counted from 0 as in pandas and PyTorch.
        odds: odds of being a member, with prior odds of 1.
        above: share of non-members with at least these odds.
    """

    row: int
    odds: float
    above: float


@dataclass(frozen=True)
class Supported:
    """Log odds that validation records support.

    Attributes:
        platt: map from scores to log odds; its slope is 0 if validation records do not show that
            members score higher.
        least: smallest log odds: about 1 to the number of validation members.
        most: largest log odds: about the number of validation non-members to 1.
    """

    platt: Platt
    least: float
    most: float

    def __call__(self, scores: Floats) -> Floats:
        """Return the log odds ``[n]``."""
        return np.clip(self.platt(scores), self.least, self.most)


def supported(scores: Floats, member: NDArray[np.bool_], *, among: int = 1) -> Supported:
    """Return the calibration that validation records support.

    No share below 1 / n can be seen among n records, so odds above n to 1 have no evidence.

    Args:
        scores: scores of validation records ``[n]``, higher for members.
        member: whether each is a member ``[n]``; at least one of each kind.
        among: number of attacks from which these records chose this one (Bonferroni).

    References:
        Mann and Whitney, On a test of whether one of two random variables is stochastically larger
        than the other, Annals of Mathematical Statistics 1947.

    >>> found = supported(np.arange(40.0), np.arange(40) >= 20)
    >>> float(np.exp(found(np.array([1e6]))[0]).round(6))
    20.0
    >>> float(supported(np.arange(40.0), np.arange(40) % 2 == 1)(np.array([1e6]))[0])
    0.0
    """
    members, others = scores[member], scores[~member]
    seen = scipy.stats.mannwhitneyu(members, others, alternative="greater").pvalue
    platt = fit_platt(scores, member) if seen < SIGNIFICANCE / among else Platt(0.0, 0.0)
    return Supported(platt, -float(np.log(len(members))), float(np.log(len(others))))


def most_at_risk(
    log_odds: Floats,
    member: NDArray[np.bool_],
    rows: Ints,
    *,
    count: int,
    calibrate: Callable[[Floats], Floats],
) -> list[AtRisk]:
    """Return the members with the highest log odds, in descending order.

    Args:
        log_odds: log odds of the targets ``[n]``.
        member: whether each target is a member ``[n]``.
        rows: rows of the targets in the data ``[n]``.
        count: number of members to return.
        calibrate: function from log odds to calibrated log odds.

    >>> member, rows = np.array([True, True, False]), np.array([7, 8, 9])
    >>> most_at_risk(np.array([0.0, -1.0, -0.5]), member, rows, count=1, calibrate=lambda x: x)
    [AtRisk(row=7, odds=1.0, above=0.0)]
    """
    others = np.sort(log_odds[~member])
    surest = np.flatnonzero(member)[np.argsort(-log_odds[member], kind="stable")][:count]
    return [
        AtRisk(
            int(rows[one]),
            float(np.exp(calibrate(log_odds[[one]])[0])),
            float((len(others) - np.searchsorted(others, log_odds[one])) / len(others)),
        )
        for one in surest.tolist()
    ]


def keep_at_risk(folder: Path, found: dict[str, Sequence[AtRisk]]) -> None:
    """Write the records most at risk under each defense."""
    plain = {defense: [asdict(one) for one in each] for defense, each in found.items()}
    write_text(folder / AT_RISK_FILE, json.dumps(plain))


def read_at_risk(folder: Path) -> dict[str, list[AtRisk]]:
    """Return the records that ``keep_at_risk`` wrote; empty if the file is missing."""
    path = folder / AT_RISK_FILE
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {defense: [AtRisk(**one) for one in each] for defense, each in kept.items()}
