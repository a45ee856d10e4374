"""The question whose records were used."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.membership.spec import QUESTION as NAME
from leakgauge.membership.spec import MembershipSpec
from leakgauge.runs import spec as settings
from leakgauge.runs.question import Answer, Progress, Question

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class MembershipQuestion:
    """White-box membership inference on a trained model."""

    name: str = NAME
    title: str = "Whose records were used?"
    asks: Mapping[str, str] = {NAME: "is it told from the model who was trained on?"}
    Spec: type[settings.Spec] = MembershipSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.membership.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: MembershipSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Train, attack and judge."""
        from leakgauge.membership.run.answering import answer

        return answer(spec, source, folder, progress, workers=workers)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.membership.report.section import section

        return section(answer, self, folder)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return settings and figures as plain values."""
        from leakgauge.membership.report.as_json import as_json

        return as_json(answer, folder)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.membership.report.assessment import assessment

        return assessment(answer, folder)

    def controls(self, spec: MembershipSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.membership.controls import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the AUROC of a grid's cells."""
        from leakgauge.report.levels import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return no charts of its own."""
        return ()


QUESTION: Question = MembershipQuestion()
