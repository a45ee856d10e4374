"""The guesses without the update that the report shows beside each attempt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.inversion.report.wording import title
from leakgauge.inversion.words import CLASS_MEAN, MEAN, NEAREST, PUBLIC
from leakgauge.report.grouping import Test

WORDS = {
    MEAN: "mean of the public records",
    CLASS_MEAN: "mean of the public records with the same label",
    PUBLIC: "public record nearest to that mean",
    NEAREST: "public record nearest to the truth: chosen by the truth, so no attacker can",
}
"""A guess in words."""


@dataclass(frozen=True)
class Guessed:
    """The guesses beside the attempts that had the same labels.

    Attributes:
        titles: of the attempts.
        best: the guess that is best for an attacker; None where it was not measured.
        scores: by guess in words and by metric: value, low and high.
    """

    titles: tuple[str, ...]
    best: str | None
    scores: Mapping[str, Mapping[str, Mapping[str, float]]]


def guesses_of(facts: Sequence[Mapping[str, Any]], tests: Sequence[Test]) -> list[Guessed]:
    """Return the guesses of all attempts; those with equal guesses together.

    Args:
        facts: of each attempt, from ``read_facts``; empty where none are kept.
        tests: the attempts in the same order.
    """
    found: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for test, fact in zip(tests, facts, strict=bool(facts)):
        if fact.get("baselines"):
            key = repr(fact["baselines"])
            found.setdefault(key, ([], fact))[0].append(title(test))
    return [
        Guessed(
            tuple(titles),
            WORDS.get(str(fact.get("best_guess"))),
            {WORDS[name]: scores for name, scores in fact["baselines"].items() if name in WORDS},
        )
        for titles, fact in found.values()
    ]
