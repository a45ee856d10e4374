"""The question when in training it leaks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.runs import spec as settings
from leakgauge.runs.question import Answer, Progress, Question
from leakgauge.tokens.spec import TimelineSpec
from leakgauge.tokens.words import QUESTION as NAME

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class TimelineQuestion:
    """Mutual information of batches and their gradients, checkpoint by checkpoint."""

    name: str = NAME
    title: str = "When in training does it leak?"
    asks: Mapping[str, str] = {NAME: "when in training do gradients reveal most about their batch?"}
    Spec: type[settings.Spec] = TimelineSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.tokens.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: TimelineSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Train, and measure at each checkpoint."""
        from leakgauge.tokens.run.answering import answer

        return answer(spec, source, folder, progress, workers=workers)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.tokens.report.section import section

        return section(answer, self)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return settings and figures as plain values."""
        from leakgauge.tokens.report.as_json import as_json

        return as_json(answer)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.tokens.evidence import assessment

        return assessment(answer)

    def controls(self, spec: TimelineSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.tokens.evidence import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the largest bound of a grid's cells."""
        from leakgauge.tokens.report.levels import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return a heat map over batch sizes and checkpoints, where the batch size varies."""
        from leakgauge.tokens.report.grid import charts

        return charts(comparison, groups)


QUESTION: Question = TimelineQuestion()
