"""Which tests are drawn and judged at length where a run has too many to read."""

from collections.abc import Sequence

from leakgauge.inference.report.cells import Cell

DRAWN = 12
"""Tests with charts and a verdict of their own; three charts take some 25 kB."""


def drawn(tests: Sequence[Cell], *, limit: int = DRAWN) -> list[Cell]:
    """The tests that are shown at length, in their own order.

    All of them, where they are few. Else for each game and defense the worst case, the highest
    AUROC among adversaries that know the defense; then the others as they come.
    """
    if len(tests) <= limit:
        return list(tests)
    worst: dict[tuple[str, str], Cell] = {}
    for test in tests:
        key = (test.game, test.defense)
        if _informed(test) and (key not in worst or _height(test) > _height(worst[key])):
            worst[key] = test
    first = {id(test) for test in [*worst.values()][:limit]}
    rest = [id(test) for test in tests if id(test) not in first]
    chosen = first | set(rest[: limit - len(first)])
    return [test for test in tests if id(test) in chosen]


def told(shown: int, of: int) -> str:
    """How the drawn tests were chosen; empty where all are."""
    if shown == of:
        return ""
    return (
        f"{shown} of {of} tests are shown at length: for each game and defense the worst case (the "
        "highest AUROC of an adversary that knows the defense), as far as there is room, then the "
        "next ones in order. The tables hold every test."
    )


def _informed(test: Cell) -> bool:
    return test.defense == "none" or test.knowledge == "adaptive"


def _height(test: Cell) -> float:
    record = test.whole("auroc")
    return -1.0 if record is None else record.estimate.value
