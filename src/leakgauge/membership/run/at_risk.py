"""The records most at risk, by their row number."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leakgauge.membership.adversaries.adversary import Floats
from leakgauge.results.measurements import write_text
from leakgauge.results.statistics import Ints

AT_RISK_FILE = "at-risk.json"


@dataclass(frozen=True)
class AtRisk:
    """A member that an attack recognises.

    Attributes:
        row: of the data, counted from 1 as a reader of the table counts its records.
        log_odds: that the attack gives it.
        above: share of non-members that the attack gives as much, or more.
    """

    row: int
    log_odds: float
    above: float


def most_at_risk(
    log_odds: Floats, member: NDArray[np.bool_], rows: Ints, *, count: int
) -> list[AtRisk]:
    """Return the members that an attack is surest of, the surest first.

    Args:
        log_odds: of the targets ``[n]``.
        member: which of them are members ``[n]``.
        rows: their positions in the data ``[n]``.
        count: how many to return.

    >>> found = most_at_risk(
    ...     np.array([2.0, 0.5, 1.0]), np.array([True, True, False]), np.array([7, 8, 9]), count=1
    ... )
    >>> found
    [AtRisk(row=8, log_odds=2.0, above=0.0)]
    """
    others = np.sort(log_odds[~member])
    surest = np.flatnonzero(member)[np.argsort(-log_odds[member], kind="stable")][:count]
    return [
        AtRisk(
            int(rows[one]) + 1,
            float(log_odds[one]),
            float((len(others) - np.searchsorted(others, log_odds[one])) / len(others)),
        )
        for one in surest.tolist()
    ]


def keep_at_risk(folder: Path, found: dict[str, Sequence[AtRisk]]) -> None:
    """Write the records most at risk under each defense."""
    plain = {defense: [asdict(one) for one in each] for defense, each in found.items()}
    write_text(folder / AT_RISK_FILE, json.dumps(plain))


def read_at_risk(folder: Path) -> dict[str, list[AtRisk]]:
    """Return what ``keep_at_risk`` wrote; nothing where the file is missing."""
    path = folder / AT_RISK_FILE
    if not path.is_file():
        return {}
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {defense: [AtRisk(**one) for one in each] for defense, each in kept.items()}
