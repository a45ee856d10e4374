"""Levels of a bound in nats."""

from leakgauge.report.compare import Group
from leakgauge.report.levels import HEADLINES
from leakgauge.report.section import Badge, Level
from leakgauge.results.measurements import Estimate, Measurement
from leakgauge.tokens.metrics import INFORMATION, PLACEBO, sees_nothing, smallest_seen
from leakgauge.tokens.words import CLEAR_NATS

STRONG_NATS = 1.0
NOTHING_NATS = 0.1
"""Largest upper end of an interval for the verdict of no leak."""

INVALID = "Not valid: the placebo leaks"


def level_of(bound: Estimate, placebo: Estimate | None = None) -> Level:
    """Return the level of the largest bound of a training.

    | interval | value | level |
    |---|---|---|
    | the placebo's is above 0 | | unknown: not valid |
    | above 0 | from ``STRONG_NATS`` | strong |
    | above 0 | from ``CLEAR_NATS`` | clear |
    | above 0 | below | weak |
    | holds 0 or lies below, ends at or below ``NOTHING_NATS`` | | none |
    | holds 0, ends above | | inconclusive |

    A bound below 0 is valid: a critic may do worse on new batches than a constant one.

    >>> level_of(Estimate(0.5, 0.2, 0.8, 100)), level_of(Estimate(-0.3, -0.5, -0.1, 100))
    ('clear', 'none')
    """
    if placebo is not None and placebo.low > 0:
        return "unknown"
    if bound.low <= 0:
        return "none" if round(bound.high, 3) <= NOTHING_NATS else "inconclusive"
    value = round(bound.value, 3)  # as printed
    return "strong" if value >= STRONG_NATS else "clear" if value >= CLEAR_NATS else "weak"


def level_of_peak(peak: Measurement | None, placebo: Measurement | None) -> Level:
    """Return the level of a training's largest bound; unknown without one.

    Without a leak it is inconclusive if the critic learned nothing: the noise of a constant critic
    says nothing about what a critic could have seen. So it is if the critic does not see a planted
    leak of ``CLEAR_NATS``, or if an oracle recognises batches by their gradients or may do so.
    """
    if peak is None:
        return "unknown"
    level = level_of(peak.estimate, None if placebo is None else placebo.estimate)
    blind = sees_nothing(peak.details) or (smallest_seen(peak.details) or 0.0) > CLEAR_NATS
    return "inconclusive" if level == "none" and blind else level


def headline(level: Level) -> str:
    """Return the verdict in a few words."""
    return HEADLINES.get(level, INVALID)


def strength_of(bound: Estimate) -> float:
    """Return the bound mapped to 0 to 1, to order verdicts of one level.

    >>> strength_of(Estimate(1.0, 0.5, 1.5, 10))
    0.5
    """
    return max(0.0, bound.value) / (1 + max(0.0, bound.value))


def badge(group: Group) -> Badge | None:
    """Return the verdict on the largest bound of a grid's cells; None without one."""
    one, placebo = group.means.get(INFORMATION), group.means.get(PLACEBO)
    if one is None:
        return None
    level = level_of_peak(one, placebo)
    return Badge(level, headline(level), strength_of(one.estimate))
