"""The question whether records can be rebuilt; imports no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.inversion.spec import InversionSpec
from leakgauge.inversion.words import NAME
from leakgauge.runs.question import Answer, Progress

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class Inversion:
    """Can the records of a client be rebuilt from what it sends?"""

    name: str = NAME
    title: str = "Can the records be rebuilt?"
    asks: Mapping[str, str] = {NAME: "whole records of a batch, rebuilt from its gradient"}
    Spec = InversionSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.inversion.metrics.table import METRICS

        return METRICS

    def run(
        self,
        spec: InversionSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Run every attempt of the spec; arguments and errors as for ``Question.run``."""
        from leakgauge.inversion.run.running import run

        return run(spec, source, folder, progress)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report; arguments as for ``Question.section``."""
        from leakgauge.inversion.report.section import section

        return section(answer, folder)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return the figures as plain values; arguments as for ``Question.to_json``."""
        from leakgauge.inversion.report.plain import to_json

        return to_json(answer, folder)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.inversion.report.assessment import assessment

        return assessment(answer, folder)

    def controls(self, spec: InversionSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.inversion.controls import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the means of a grid's cells."""
        from leakgauge.inversion.report.levels import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return the time along the local steps, where a grid simulates them; else none."""
        from leakgauge.inversion.report.curves import charts

        return charts(groups)


QUESTION = Inversion()
"""The instance that the catalogue lists."""
