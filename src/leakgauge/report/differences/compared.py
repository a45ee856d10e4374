"""What a comparison of two audits gives: rows, a table for pandas, and a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.report.differences.audited import Audited
from leakgauge.report.differences.difference import Difference
from leakgauge.report.differences.saying import Change
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
        only: what only one audit has, one sentence each.
        changed: the settings and versions in which the audits differ.
        warnings: what makes the differences mean something else.
        notes: what a reader must know of the intervals.
    """

    before: Audited
    after: Audited
    rows: Sequence[Difference]
    only: Sequence[str] = ()
    changed: Sequence[Change] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def main(self) -> list[Difference]:
        """The differences that the answer stands on, those of the model last."""
        chosen = [one for one in self.rows if one.main and not one.control]
        return sorted(chosen, key=lambda one: one.metric.of_model)

    @property
    def leakage(self) -> list[Difference]:
        """The main differences of adversaries."""
        return [one for one in self.main if not one.metric.of_model]

    @property
    def utility(self) -> list[Difference]:
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
        from leakgauge.report.differences.page import render_differences

        html = render_differences(self)
        if path is not None:
            write_text(Path(path), html)
        return html

    def _repr_html_(self) -> str:
        """The main differences, as a notebook shows them."""
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
