"""The question what the kept updates of a real federation give away; imports no torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.federation.spec import ASKS, NAME, TITLES, FederationSpec
from leakgauge.runs import spec as settings
from leakgauge.runs.question import Answer, Progress, Question

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder

_AS_THEY_ARE = "kept updates are what clients sent; no data of theirs can be changed for a control"


class FederationQuestion:
    """Inversion, membership and property of kept updates; a command of its own asks it."""

    name: str = NAME
    title: str = "What do the kept updates give away?"
    asks: Mapping[str, str] = {ask: f"{TITLES[ask]} (of kept updates)" for ask in ASKS}
    Spec: type[settings.Spec] = FederationSpec

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        from leakgauge.federation.metrics import METRICS

        return METRICS

    def run(
        self,
        spec: FederationSpec,
        source: "Source",
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Attack each kept update; finished ones are read back from the folder."""
        from leakgauge.federation.run.answering import answer

        return answer(spec, source, folder, progress)

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        from leakgauge.federation.report.section import section

        return section(answer, self, folder)

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return settings and figures as plain values."""
        from leakgauge.federation.report.assessment import as_json

        return as_json(answer)

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        from leakgauge.federation.report.assessment import assessment

        return assessment(answer)

    def controls(self, spec: FederationSpec, source: "Source") -> "Controls":
        """Return why there is no control."""
        from leakgauge.runs.assessment import Controls

        return Controls(_AS_THEY_ARE, _AS_THEY_ARE)

    def badge(self, group: "Group") -> "Badge | None":
        """Return None: updates are kept, and no grid plays them."""
        return None

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return no charts of its own."""
        return ()


QUESTION: Question = FederationQuestion()
