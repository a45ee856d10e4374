"""The comparisons of a bundle as plain values: each text stands once, and is named by its place."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leakgauge.report.differences.compared import Differences
from leakgauge.report.differences.difference import AuditDifference
from leakgauge.report.wording import interval, number, quoted, short, signed


@dataclass(frozen=True)
class Compared:
    """Two runs of the list, and what ``compare`` says of them.

    Attributes:
        before: number of the earlier run in the list.
        after: number of the later run.
        found: their differences, or why they are not compared.
    """

    before: int
    after: int
    found: Differences | str


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts without repetition.

    Attributes:
        places: the place of each text, in the order of their first use.
    """

    places: dict[str, int] = field(default_factory=dict)

    def at(self, text: str) -> int:
        """Return the place of a text."""
        return self.places.setdefault(text, len(self.places))

    def each(self, texts: Iterable[str]) -> list[int]:
        """Return the places of several texts."""
        return [self.at(one) for one in texts]


def plain_pairs(pairs: Iterable[Compared], texts: Texts) -> dict[str, Any]:
    """Return the comparisons by ``before-after``, with places in ``texts`` for their words."""
    return {f"{one.before}-{one.after}": _plain(one.found, texts) for one in pairs}


def _plain(found: Differences | str, texts: Texts) -> dict[str, Any]:
    if isinstance(found, str):
        return {"why": texts.at(found)}
    changes = ((one.where, one.name, one.before, one.after) for one in found.changed)
    return {
        "rows": [texts.each(_cells(one)) for one in found.main],
        "warnings": texts.each(map(quoted, found.warnings)),
        "changed": [texts.each(one) for one in changes],
        "notes": texts.each(map(quoted, found.notes)),
        "only": texts.each(map(quoted, found.only)),
    }


def _cells(one: AuditDifference) -> tuple[str, ...]:
    """Return the texts of one line, as the page of ``compare`` shows them."""
    before, after, found = one.before.estimate, one.after.estimate, one.estimate
    return (
        one.title,
        one.metric.label,
        number(before.value),
        interval(before),
        number(after.value),
        interval(after),
        signed(found.value),
        f"{signed(found.low)} to {signed(found.high)}",
        one.verdict,
        one.badge.level,
        "\N{EN DASH}" if one.smallest is None else short(one.smallest),
    )
