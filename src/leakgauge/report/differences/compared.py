"""Compares two audits: their differences as rows, as a table for pandas, and as a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.core.checks import require, require_known
from leakgauge.report.differences import pairing, saying
from leakgauge.report.differences.audited import Audited, Topic, TopicFigures
from leakgauge.report.differences.difference import AuditDifference, difference_of
from leakgauge.report.differences.pairing import Metrics
from leakgauge.report.differences.saying import SettingChange
from leakgauge.report.grouping import UNDEFENDED
from leakgauge.report.wording import change

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Differences:
    """The differences of two audits, after minus before.

    Attributes:
        before: the first audit.
        after: the second audit.
        rows: all differences; ``main`` selects those that the answer stands on.
        only: figures of only one audit, one sentence each.
        changed: the settings and versions in which the audits differ.
        warnings: what changes the meaning of the differences.
        notes: notes about the intervals.
    """

    before: Audited
    after: Audited
    rows: Sequence[AuditDifference]
    only: Sequence[str] = ()
    changed: Sequence[SettingChange] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def main(self) -> list[AuditDifference]:
        """The differences that the answer stands on, those of the model last."""
        chosen = [one for one in self.rows if one.main and not one.control]
        return sorted(chosen, key=lambda one: one.metric.of_model)

    @property
    def leakage(self) -> list[AuditDifference]:
        """The main differences of adversaries."""
        return [one for one in self.main if not one.metric.of_model]

    @property
    def utility(self) -> list[AuditDifference]:
        """The main differences of the trained models: the price."""
        return [one for one in self.main if one.metric.of_model]

    def to_json(self) -> dict[str, Any]:
        """Return all differences, and what limits them, as plain values."""
        return {
            "before": _side(self.before),
            "after": _side(self.after),
            "changed": [vars(one) for one in self.changed],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "differences": [one.to_json() for one in self.rows],
            "only_on_one_side": list(self.only),
        }

    def to_pandas(self) -> "pd.DataFrame":
        """Return one row per difference: the figure before and after, and the interval."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "question": one.topic.question,
                    "ask": one.topic.game,
                    "secret": one.topic.secret,
                    "defense_before": one.before.defense,
                    "defense": one.after.defense,
                    "knowledge": one.after.knowledge,
                    "adversary": one.after.adversary,
                    "metric": one.after.metric,
                    "round": one.after.round,
                    "before": one.before.estimate.value,
                    "after": one.after.estimate.value,
                    "difference": one.estimate.value,
                    "low": one.estimate.low,
                    "high": one.estimate.high,
                    "smallest_detectable": one.smallest,
                    "verdict": one.verdict,
                    "main": one.main,
                    "control": one.control,
                }
                for one in self.rows
            ]
        )

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the comparison as one HTML page; with ``path``, write it there too."""
        from leakgauge.core.files import write_text

        html = render_differences(self)
        if path is not None:
            write_text(Path(path), html)
        return html

    def _repr_html_(self) -> str:
        """Return the main differences as a table for notebooks."""
        from html import escape

        cells = (
            (one.title, one.metric.label, change(one.estimate), one.verdict) for one in self.main
        )
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in cells
        )
        head = "<tr><th>test</th><th>metric</th><th>difference</th><th>verdict</th></tr>"
        return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"

    def __str__(self) -> str:
        return "\n".join(
            f"{one.title}: {one.verdict} ({one.metric.label} {change(one.estimate)})"
            for one in self.main
        )


def _side(audit: Audited) -> dict[str, Any]:
    return {
        "folder": audit.name,
        "data": dict(audit.data),
        "versions": dict(audit.versions),
        "repeat": audit.repeat,
    }


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
        metrics: metrics of each question, by name.
        defenses: defenses of the second audit; empty for all.
        against: defense of the first audit; empty for the one that fits.

    Raises:
        InputError: a defense is unknown, or the audits have no figure in common.
    """
    for name in defenses:
        _require_defense(name, after, "the second")
    if against:
        _require_defense(against, before, "the first")
    one, other = before.topics, after.topics
    topics = pairing.paired_topics(one, other)
    rows: list[AuditDifference] = []
    only = saying.topics_on_one_side(before, after, topics)
    for first, topic in topics:
        sides = one[first], other[topic]
        found, left = _compared_topic(topic, *sides, metrics[topic.question], defenses, against)
        rows += found
        only += left
    require(
        bool(rows),
        f"the two audits have no figure in common ({'; '.join(only[:2])}); compare audits of the "
        "same question",
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


def _require_defense(name: str, audit: Audited, which: str) -> None:
    known = audit.defenses
    require_known(name, known, f"{which} audit ({audit.name}) has no defense {name!r}")


def _compared_topic(
    topic: Topic,
    before: TopicFigures,
    after: TopicFigures,
    metrics: Metrics,
    wanted: Sequence[str],
    against: str,
) -> tuple[list[AuditDifference], list[str]]:
    """Return the differences in a topic of both audits, and what stands on one side only."""
    pairs = pairing.paired_defenses(before, after, wanted=wanted, against=against)
    only = saying.defenses_on_one_side(topic, before, after, pairs)
    about_defenses = bool(wanted or against) or not (before.defended and after.defended)
    same_run = before.identity is not None and before.identity == after.identity
    rows: list[AuditDifference] = []
    for number, (one, other) in enumerate(pairs):
        control = about_defenses and number > 0 and (one, other) == (UNDEFENDED, UNDEFENDED)
        same = one == other and same_run
        sides = before.under(one), after.under(other)
        figures, left = pairing.attacks(*sides, metrics)
        figures = [pair.uncut(*sides) for pair in figures] + pairing.of_model(*sides, metrics)
        compared = [pair for pair in figures if same or pair.has_intervals]
        rows += [difference_of(topic, pair, control=control, same=same) for pair in compared]
        without = [pair for pair in figures if not (same or pair.has_intervals)]
        only += saying.figures_on_one_side(topic, left, sides[0])
        only += saying.figures_without_intervals(topic, without)
    return rows, only


def render_differences(found: Differences) -> str:
    """Return one self-contained HTML page; equal audits give equal bytes."""
    from leakgauge.report.templates import render

    values = {
        "found": found,
        "leakage": found.leakage,
        "utility": found.utility,
        "charts": _charts(found.main),
        "controls": [one for one in found.rows if one.control and one.main],
        "by_topic": _grouped(found.rows, lambda one: one.topic.title),
        "confidence": found.rows[0].estimate.confidence,
        "versions": found.after.versions,
    }
    return str(render("leakgauge.report.differences", "differences.html.j2", values))


def _charts(rows: Sequence[AuditDifference]) -> list[dict[str, Any]]:
    """Return one chart for each metric, as metrics have different scales."""
    from leakgauge.report.differences.chart import draw, says

    by_metric = _grouped(rows, lambda one: one.metric.label)
    return [
        {"label": label, "rows": some, "says": says(some), "svg": draw(some, name=f"d{number}")}
        for number, (label, some) in enumerate(by_metric.items(), start=1)
    ]


def _grouped(
    rows: Sequence[AuditDifference], name: Callable[[AuditDifference], str]
) -> dict[str, list[AuditDifference]]:
    found: dict[str, list[AuditDifference]] = {}
    for one in rows:
        found.setdefault(name(one), []).append(one)
    return found
