"""Selects the tests that have charts and a verdict at full length where a run has many."""

from collections.abc import Sequence

from leakgauge.core.knowledge import ADAPTIVE
from leakgauge.inference.report.headline import leading
from leakgauge.report.grouping import Test
from leakgauge.runs.spec import NONE

LIMIT = 12
"""Tests with charts and a verdict of their own; three charts take about 25 kB."""


def selected(tests: Sequence[Test], *, limit: int = LIMIT) -> list[Test]:
    """Return the tests that are shown at full length, in their own order.

    All of them, where they are few. Otherwise first the worst case of each game and defense: of
    the tests that the answer stands on, the highest AUROC among adversaries that know the
    defense; then the other tests in order.
    """
    if len(tests) <= limit:
        return list(tests)
    worst: dict[tuple[str, str], Test] = {}
    for test in leading(tests):
        key = (test.game, test.defense)
        if _informed(test) and (key not in worst or _auroc(test) > _auroc(worst[key])):
            worst[key] = test
    first = {id(test) for test in [*worst.values()][:limit]}
    rest = [id(test) for test in tests if id(test) not in first]
    chosen = first | set(rest[: limit - len(first)])
    return [test for test in tests if id(test) in chosen]


def how_selected(count: int, of: int) -> str:
    """Return how the tests were selected; empty where all of them are shown."""
    if count == of:
        return ""
    return (
        f"{count} of {of} tests are shown at full length: for each game and defense the worst case "
        "(the highest AUROC of an adversary that knows the defense) as far as there is room, then "
        "the other tests in order. The tables hold every test."
    )


def _informed(test: Test) -> bool:
    return test.defense == NONE or test.knowledge == ADAPTIVE


def _auroc(test: Test) -> float:
    one = test.whole("auroc")
    return -1.0 if one is None else one.estimate.value
