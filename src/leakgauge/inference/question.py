"""The question of inference, as the commands, the store and the report know it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.inference.spec import ASKS, InferenceSpec
from leakgauge.runs.question import Answer, Progress, Question
from leakgauge.runs.spec import Spec as BaseSpec

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class InferenceQuestion:
    """What secrets do gradients give away? See ``leakgauge.runs.question.Question``."""

    name = "inference"
    title = "What secrets do gradients give away?"
    asks: Mapping[str, str] = ASKS
    Spec: type[BaseSpec] = InferenceSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.inference.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: InferenceSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Train, attack and judge; finished rounds are read back from the folder.

        Raises:
            InputError: nothing could be measured.
        """
        from leakgauge.inference.run.answering import answer

        return answer(spec, source, folder, progress, workers=workers)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.inference.report.section import section

        return section(answer, self)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return every test with its figures, and the model's utility."""
        from leakgauge.inference.report.plain import to_json

        return to_json(answer)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.inference.report.assessment import assessment

        return assessment(answer)

    def controls(self, spec: InferenceSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.inference.controls import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the means of a grid's cells."""
        from leakgauge.report.levels import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return leakage against utility, where defenses vary, and the rounds of few cells."""
        from leakgauge.inference.report.grid import charts

        return charts(comparison, groups)


QUESTION: Question = InferenceQuestion()
