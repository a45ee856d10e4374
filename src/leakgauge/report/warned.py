"""What changes the meaning of figures, for the top of a page."""

from collections.abc import Iterable, Sequence
from typing import Protocol


class Warned(Protocol):
    """A section of a report, or a cell of a grid, with its warnings."""

    @property
    def warnings(self) -> Sequence[str]:
        """What changes the meaning of its figures, each with advice."""
        ...


def warnings_of(parts: Iterable[Warned]) -> list[str]:
    """Return what changes the meaning of the figures of sections or cells, each once."""
    return list(dict.fromkeys(text for part in parts for text in part.warnings))


def together(warnings: Sequence[str]) -> dict[str, list[str]]:
    """Return what is wrong by the advice, so that equal advice stands once.

    >>> together(["model a is wrong: train it", "b is a name: drop it", "model c is: train it"])
    {': train it': ['model a is wrong', 'model c is'], ': drop it': ['b is a name']}
    """
    groups: dict[str, list[str]] = {}
    for text in warnings:
        what, colon, advice = text.rpartition(": ")
        groups.setdefault(colon + advice, []).append(what)
    return groups
