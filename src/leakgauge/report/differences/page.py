"""The page of a comparison of two audits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from leakgauge.report.differences.chart import draw, says
from leakgauge.report.differences.difference import Difference
from leakgauge.report.templates import render

if TYPE_CHECKING:  # it calls this module
    from leakgauge.report.differences.compared import Differences


def render_differences(found: "Differences") -> str:
    """Return one self-contained HTML page; equal audits give equal bytes."""
    values = {
        "found": found,
        "leakage": found.leakage,
        "utility": found.utility,
        "charts": _charts(found.main),
        "controls": [one for one in found.rows if one.control and one.main],
        "by_topic": _by_topic(found.rows),
        "confidence": found.rows[0].estimate.confidence,
        "versions": found.after.versions,
    }
    return str(render("leakgauge.report.differences", "differences.html.j2", values))


def _charts(rows: Sequence[Difference]) -> list[dict[str, Any]]:
    """One chart for each metric, as different metrics have different scales."""
    by_metric: dict[str, list[Difference]] = {}
    for one in rows:
        by_metric.setdefault(one.metric.label, []).append(one)
    return [
        {"label": label, "rows": some, "says": says(some), "svg": draw(some, name=f"d{number}")}
        for number, (label, some) in enumerate(by_metric.items(), start=1)
    ]


def _by_topic(rows: Sequence[Difference]) -> dict[str, list[Difference]]:
    """All rows by what they are about, in their own order."""
    found: dict[str, list[Difference]] = {}
    for one in rows:
        found.setdefault(one.topic.title, []).append(one)
    return found
