"""The tests that an answer stands on: of each game and defense, the one that shadow data favour."""

from collections.abc import Sequence

from leakgauge.inference.catalog import PANEL
from leakgauge.report.grouping import Test
from leakgauge.results.measurements import (
    ACCUMULATED,
    CHOSEN,
    HEADLINE,
    STACKED,
    Measurement,
)

SUMS = (ACCUMULATED, STACKED)

WHOLE = "sum of the rounds"


def leading(tests: Sequence[Test]) -> list[Test]:
    """Return the tests that an answer stands on, in their own order.

    Of each game, defense and knowledge: the test that held-out shadow data favour, and those
    that did not judge such data, which nothing but their figures compares.
    """
    return [test for test in tests if test.has(HEADLINE) or not test.has(CHOSEN)]


def reading_of(one: Measurement) -> str:
    """Return what a figure was read from: a round alone, or a sum of all rounds."""
    if one.round in SUMS:
        return {ACCUMULATED: f"plain {WHOLE}", STACKED: f"weighted {WHOLE}"}[str(one.round)]
    return one.details.get("reading", f"round {one.round} alone")


def covers_all_rounds(one: Measurement) -> bool:
    """Return whether a figure is read from all rounds."""
    return one.round in SUMS or reading_of(one).endswith(WHOLE)


def called(adversary: str) -> str:
    """Return how a sentence names an adversary.

    >>> called("forest"), called("panel")
    ('the forest adversary', 'the panel of adversaries')
    """
    return "the panel of adversaries" if adversary == PANEL else f"the {adversary} adversary"
