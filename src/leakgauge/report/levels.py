"""Words for an AUROC: how much leaks, or how little a test could have seen."""

from leakgauge.report.compare import Group
from leakgauge.report.facts import plain_interval
from leakgauge.report.section import Badge, Level
from leakgauge.results.measurements import Estimate
from leakgauge.results.scores import AUROC

STRONG_AUROC = 0.9
CLEAR_AUROC = 0.7
NOTHING_AUROC = 0.6
"""Largest upper end of an interval at which a test reports no leak."""

HEADLINES: dict[Level, str] = {
    "strong": "Strong leakage",
    "clear": "Clear leakage",
    "weak": "Weak leakage",
    "inconclusive": "Inconclusive",
    "none": "No leakage found",
    "below": "Below chance: not valid",
}
LEAKS: tuple[Level, ...] = ("strong", "clear", "weak")


def level_of(auroc: Estimate, chance: float = 0.5) -> Level:
    """Return the level of an AUROC: its interval decides whether it leaks, its value how much.

    | interval | value | level |
    |---|---|---|
    | above chance | from ``STRONG_AUROC`` | strong |
    | above chance | from ``CLEAR_AUROC`` | clear |
    | above chance | below | weak |
    | holds chance, ends at or below ``NOTHING_AUROC`` | | none |
    | holds chance, ends above | | inconclusive |
    | below chance | | below: not valid |

    >>> level_of(Estimate(0.72, 0.65, 0.79, 200)), level_of(Estimate(0.72, 0.48, 0.9, 20))
    ('clear', 'inconclusive')
    """
    if auroc.high < chance:
        return "below"
    if auroc.low <= chance:
        return "none" if round(auroc.high, 3) <= NOTHING_AUROC else "inconclusive"
    value = round(auroc.value, 3)  # as printed, so that the word and the figure agree
    return "strong" if value >= STRONG_AUROC else "clear" if value >= CLEAR_AUROC else "weak"


def auroc_rule() -> str:
    """Return the rule of ``level_of`` in words, for the sections of a report."""
    return (
        "A test shows leakage where the whole interval of its AUROC lies above guessing. The "
        f"leakage is strong from an AUROC of {STRONG_AUROC}, clear from {CLEAR_AUROC}, weak below. "
        "Where the interval holds guessing, the test shows none if the interval ends at "
        f"{NOTHING_AUROC} or below, and is inconclusive if it ends above. Where it lies wholly "
        "below guessing, the test is not valid. The AUROC is the probability that the attacker, "
        "given one case of each kind, names the right one."
    )


def strength_of(auroc: Estimate, chance: float) -> float:
    """Return the AUROC between guessing (0) and always right (1).

    >>> strength_of(Estimate(0.75, 0.7, 0.8, 100), 0.5)
    0.5
    """
    return max(0.0, (auroc.value - chance) / (1 - chance))


def badge(group: Group) -> Badge | None:
    """Return the verdict on the AUROC of a grid's cells; None without one."""
    one = group.means.get(AUROC)
    if one is None:
        return None
    level = level_of(one.estimate, one.chance)
    return Badge(level, HEADLINES[level], strength_of(one.estimate, one.chance))


_ENDS = (0.4, 1.0)
"""The AUROCs at the two ends of a gauge."""


def gauge(auroc: Estimate, chance: float) -> dict[str, str]:
    """Return the CSS lengths of a gauge by name, for the macro ``gauge``.

    >>> gauge(Estimate(0.7, 0.6, 0.8, 100), 0.5)["value"]
    '50.00%'
    """
    low, high = _ENDS
    places = {
        "from": min(chance, auroc.value),
        "to": max(chance, auroc.value),
        "chance": chance,
        **plain_interval(auroc),
        "clear": CLEAR_AUROC,
        "strong": STRONG_AUROC,
    }
    shares = {name: min(1.0, max(0.0, (at - low) / (high - low))) for name, at in places.items()}
    return {name: f"{100 * share:.2f}%" for name, share in shares.items()}
