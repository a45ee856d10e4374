"""The question whether a promised guarantee holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.guarantee.spec import QUESTION as NAME
from leakgauge.guarantee.spec import GuaranteeSpec
from leakgauge.runs import spec as settings
from leakgauge.runs.question import Answer, Progress, Question

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class GuaranteeQuestion:
    """A worst-case audit of a differentially private mechanism, on one record."""

    name: str = NAME
    title: str = "Does the promised guarantee hold?"
    asks: Mapping[str, str] = {NAME: "does DP-SGD hide an attribute of a single record?"}
    Spec: type[settings.Spec] = GuaranteeSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.guarantee.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: GuaranteeSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Return what an auditor learns of one attribute; ``workers`` changes nothing."""
        from leakgauge.guarantee.run.audit import run

        return run(spec, source, folder, progress)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.guarantee.report.section import section

        return section(answer, self.title, at=self.name)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return settings and figures as plain values."""
        from leakgauge.guarantee.report.audited import as_json

        return as_json(answer)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.guarantee.report.assessment import assessment

        return assessment(answer)

    def controls(self, spec: GuaranteeSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.guarantee.controls import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the means of a grid's cells."""
        from leakgauge.guarantee.report.charts import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return epsilon over noise and clip, or the scores where neither varies."""
        from leakgauge.guarantee.report.charts import charts

        return charts(comparison, groups)


QUESTION: Question = GuaranteeQuestion()
