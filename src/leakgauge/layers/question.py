"""The question where in the network it leaks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.layers.catalog import QUESTION as NAME
from leakgauge.layers.spec import LayersSpec
from leakgauge.runs import spec as settings
from leakgauge.runs.question import Answer, Progress, Question

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class LayersQuestion:
    """Property inference, usable information and sensitivity, layer by layer."""

    name: str = NAME
    title: str = "Where in the network does it leak?"
    asks: Mapping[str, str] = {
        NAME: "which layers of the network give the secret away, and which to protect first?"
    }
    Spec: type[settings.Spec] = LayersSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.layers.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: LayersSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Train, attack and judge."""
        from leakgauge.layers.run.answering import answer

        return answer(spec, source, folder, progress, workers=workers)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.layers.report.section import section

        return section(answer, self, folder)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return settings and figures as plain values."""
        from leakgauge.layers.report.as_json import as_json

        return as_json(answer, folder)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.layers.evidence import assessment

        return assessment(answer)

    def controls(self, spec: LayersSpec, source: "Source") -> "Controls":
        """Return a run without anything to learn, and one whose secret lies open."""
        from leakgauge.layers.evidence import controls

        return controls(spec, source)

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the AUROC of a grid's cells."""
        from leakgauge.report.levels import badge

        return badge(group)

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return no charts of its own."""
        return ()


QUESTION: Question = LayersQuestion()
