"""Remarks on a comparison: changed settings, limits, and figures without a partner."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leakgauge.report.differences.audited import Audited, Topic, TopicFigures
from leakgauge.report.differences.difference import AuditDifference
from leakgauge.report.differences.pairing import FigurePair
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.wording import plain
from leakgauge.results.measurements import Measurement

Topics = Sequence[tuple[Topic, Topic]]

SEEDS = "seeds"
"""Name of the setting for the number of seeds."""

CHANCE = 20
"""One of this many 95 % intervals misses the true value."""


@dataclass(frozen=True)
class SettingChange:
    """A setting in which two audits differ.

    Attributes:
        where: key of the answer, or ``"package"``.
        name: name of the setting.
        before: its value in the first audit.
        after: its value in the second.
    """

    where: str
    name: str
    before: str
    after: str


def changes(before: Audited, after: Audited) -> list[SettingChange]:
    """Return the settings and versions in which the audits differ."""
    found = [
        change
        for key in after.settings
        if key in before.settings
        for change in _changed(key, before.settings[key], after.settings[key])
    ]
    return [*found, *_changed("package", before.versions, after.versions)]


def _changed(
    where: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[SettingChange]:
    for name in dict.fromkeys([*one, *other]):
        values = plain(one.get(name)), plain(other.get(name))
        if values[0] != values[1]:
            yield SettingChange(where, name, *values)


def warnings(
    before: Audited, after: Audited, topics: Topics, rows: Sequence[AuditDifference]
) -> Iterator[str]:
    """Yield what changes the meaning of the differences, each with advice."""
    marks = [str(one.data.get("fingerprint", "")) for one in (before, after)]
    if marks[0] != marks[1]:
        names = [str(one.data.get("name", "")) for one in (before, after)]
        yield (
            f"the data differ ({names[0]}, {marks[0][:12]}, before; {names[1]}, {marks[1][:12]}, "
            "after): a difference may come from the data; to see the change alone, repeat one "
            "audit on the data of the other"
        )
    for one, other in topics:
        if one.secret != other.secret:
            yield (
                f"{other.title} is compared with {one.title}: some secrets are easier to infer "
                "than others; to see the change alone, ask both audits about the same --secret"
            )
    moved = [one for one in rows if one.control and (one.main or not one.metric.of_model)]
    if any(one.before.estimate != one.after.estimate for one in moved):
        yield (
            "the audits differ without a defense too, so a difference shows the defense and what "
            "else changed; to see the defense alone, run both with the same settings, --seed and "
            "data"
        )


def notes(before: Audited, after: Audited, rows: Sequence[AuditDifference]) -> Iterator[str]:
    """Yield notes about the intervals."""
    compared = [one for one in rows if not one.same]
    if not compared:
        yield "Both folders hold the same run: equal settings, seed, data and versions."
        return
    yield (
        "An interval is made of those of the two audits, as if they were independent (MOVER). "
        "Audits of the same seed and data share records and trials, so it is rather too wide."
    )
    if not all(_several_seeds(one) for one in (before, after)):
        yield (
            "An audit of one seed covers the choice of records and trials, not other trainings: "
            "two audits that differ in their seed alone may differ by more. Repeat both with "
            "`--seeds 3` before you decide."
        )
    main = [one for one in compared if one.main and not one.control]
    if len(main) > 1:
        yield (
            f"There are {len(main)} main differences. Where nothing changed, about one in {CHANCE} "
            "would seem to differ."
        )


def _several_seeds(audit: Audited) -> bool:
    """Whether all figures are means over seeds, so that their intervals cover trainings."""
    return bool(audit.settings) and all(
        isinstance(one.get(SEEDS), int) and one[SEEDS] > 1 for one in audit.settings.values()
    )


def topics_on_one_side(before: Audited, after: Audited, topics: Topics) -> list[str]:
    """Return topics of only one audit, with the reason if it is known."""
    paired = [{one for one, _ in topics}, {other for _, other in topics}]
    sides = ((before, paired[0], "before", after), (after, paired[1], "after", before))
    return [
        f"{topic.title}: only {when}; {_why_not(topic, other)}"
        for audit, met, when, other in sides
        for topic in audit.topics
        if topic not in met
    ]


def _why_not(topic: Topic, other: Audited) -> str:
    words = {topic.question, topic.game} - {""}
    refused = [text for text in other.missing if text.split(":")[0].split(",")[0] in words]
    return refused[0] if refused else "the other audit did not ask"


def defenses_on_one_side(
    topic: Topic, before: TopicFigures, after: TopicFigures, pairs: Sequence[tuple[str, str]]
) -> list[str]:
    """Return the defenses that are not compared, with what would compare them."""
    met = [{one for one, _ in pairs}, {other for _, other in pairs}]
    left = [name for name in before.defended if name not in met[0]]
    new = [name for name in after.defended if name not in met[1]]
    sides = [("before", "--against", name) for name in left]
    sides += [("after", "--defense", name) for name in new]
    return [
        f"{topic.title}, {name}: only {when}; to compare it, give {option} {name}"
        for when, option, name in sides
    ]


def figures_on_one_side(
    topic: Topic, left: Iterable[Measurement], before: Sequence[Measurement]
) -> Iterator[str]:
    """Yield one sentence for each test with figures in only one audit."""
    first = {id(one) for one in before}
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for one in left:
        side = "before" if id(one) in first else "after"
        under = f"{one.defense} {one.knowledge}" if one.defense != UNDEFENDED else "no defense"
        who = f"{one.adversary}, {under}"
        groups.setdefault((side, who), []).append(one)
    for (side, who), several in groups.items():
        rounds = ", ".join(dict.fromkeys(str(one.round) for one in several))
        count = f"{len(several)} figures" if len(several) > 1 else "1 figure"
        yield f"{topic.title}, {who}: {count} (round {rounds}) only {side}; the other has none such"


def figures_without_intervals(topic: Topic, pairs: Sequence[FigurePair]) -> Iterator[str]:
    """Yield one sentence for the figures that a single value or a count gives no interval."""
    names = ", ".join(dict.fromkeys(pair.metric.label for pair in pairs))
    if names:
        yield f"{topic.title}: not compared, since they have no interval: {names}"
