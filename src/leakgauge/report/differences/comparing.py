"""Compares two audits: all differences, and what stands on one side only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leakgauge.core.checks import nearest, require
from leakgauge.report.differences import pairing, saying
from leakgauge.report.differences.audited import Answered, Audited, Topic
from leakgauge.report.differences.compared import Differences
from leakgauge.report.differences.difference import Difference, difference_of
from leakgauge.report.differences.pairing import Metrics
from leakgauge.report.grouping import UNDEFENDED


def compare_audits(
    before: Audited,
    after: Audited,
    metrics: Mapping[str, Metrics],
    *,
    defenses: Sequence[str] = (),
    against: str = "",
) -> Differences:
    """Return the differences of two audits, after minus before.

    Args:
        before: the first audit.
        after: the second.
        metrics: of each question, by name.
        defenses: defenses of the second audit; empty for all.
        against: defense of the first audit; empty for the one that fits.

    Raises:
        InputError: a defense is unknown, or the audits have no figure in common.
    """
    for name in defenses:
        _require_played(name, after, "the second")
    if against:
        _require_played(against, before, "the first")
    one, other = before.topics, after.topics
    topics = pairing.paired_topics(one, other)
    rows: list[Difference] = []
    only = saying.topics_on_one_side(before, after, topics)
    for first, topic in topics:
        compared = _Topic(topic, one[first], other[topic], metrics[topic.question])
        found, left = compared.all(defenses, against)
        rows += found
        only += left
    require(
        bool(rows),
        "the two audits have no figure in common ("
        + "; ".join(only[:2])
        + "); compare audits of the same question",
    )
    return Differences(
        before=before,
        after=after,
        rows=tuple(rows),
        only=tuple(dict.fromkeys(only)),
        changed=tuple(saying.changes(before, after)),
        warnings=tuple(saying.warnings(before, after, topics, rows)),
        notes=tuple(saying.notes(before, after, rows)),
    )


def _require_played(name: str, audit: Audited, which: str) -> None:
    known = audit.defenses
    require(
        name in known,
        f"{which} audit ({audit.name}) has no defense {name!r}{nearest(name, known)}",
    )


@dataclass(frozen=True)
class _Topic:
    """What both audits measured of one topic."""

    topic: Topic
    before: Answered
    after: Answered
    metrics: Metrics

    def all(self, wanted: Sequence[str], against: str) -> tuple[list[Difference], list[str]]:
        """Return the differences, and what stands on one side only."""
        pairs = pairing.paired_defenses(self.before, self.after, wanted=wanted, against=against)
        only = saying.defenses_on_one_side(self.topic, self.before, self.after, pairs)
        chosen = bool(wanted or against)
        about_defenses = chosen or not (self.before.defended and self.after.defended)
        rows: list[Difference] = []
        for number, (one, other) in enumerate(pairs):
            bare = number > 0 and (one, other) == (UNDEFENDED, UNDEFENDED)
            found, left = self._under(one, other, control=bare and about_defenses)
            rows += found
            only += left
        return rows, only

    def _under(self, one: str, other: str, *, control: bool) -> tuple[list[Difference], list[str]]:
        """Return the differences under two defenses, and what has no partner or no interval."""
        sides = self.before.under(one), self.after.under(other)
        pairs, left = pairing.attacks(*sides, self.metrics)
        pairs += pairing.of_model(*sides, self.metrics)
        identity = self.before.identity
        same = one == other and identity is not None and identity == self.after.identity
        judged = [pair for pair in pairs if same or pair.has_intervals]
        rows = [difference_of(self.topic, pair, control=control, same=same) for pair in judged]
        without = [pair for pair in pairs if not (same or pair.has_intervals)]
        return rows, [
            *saying.figures_on_one_side(self.topic, left, sides[0]),
            *saying.figures_without_intervals(self.topic, without),
        ]
