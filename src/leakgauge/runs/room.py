"""A room's declared face: which function of the room does each part of a ``Question``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakgauge.runs.question import Answer, Prepared, Progress
from leakgauge.runs.spec import NONE, Spec

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from torch import nn

    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.measurements import Run
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder

DPSGD = "dpsgd"

PLACES: Mapping[str, str] = {
    "metrics": "metrics:METRICS",
    "check": "checking:check",
    "prepare": "run.preparing:prepare",
    "run": "run.answering:answer",
    "section": "report.section:section",
    "to_json": "report.as_json:as_json",
    "assessment": "report.assessment:assessment",
    "controls": "controls:controls",
    "badge": "leakgauge.report.levels:badge",
    "charts": "leakgauge.runs.room:no_charts",
}
"""``module:attribute`` of each part, below the room's package where it names no other."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """A question whose parts are functions of one package, imported when they are first used.

    It is a ``leakgauge.runs.question.Question``. Each part has the signature of the method of the
    same name; ``section`` also gets the question.

    Attributes:
        name: one word: ``Measurement.question``, the prefix of ``--set``, the section's anchor.
        title: the question as a sentence.
        asks: the words of ``--ask``, each with one line of help.
        Spec: the class of its settings.
        home: the room's package.
        places: parts that are not where ``PLACES`` says, as ``module:attribute``.

    >>> from leakgauge.runs.spec import Spec
    >>> Room(name="x", title="", asks={}, Spec=Spec, home="a.package").places
    {}
    """

    name: str
    title: str
    asks: Mapping[str, str]
    Spec: type[Spec]
    home: str
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        metrics: Mapping[str, Metric] = self._part("metrics")
        return metrics

    def check(self, spec: Any) -> None:
        """Refuse settings that are wrong for any data.

        Raises:
            InputError: a value is outside its bounds, or settings contradict each other.
        """
        self._part("check")(spec)

    def prepare(self, spec: Any, source: "Source") -> Prepared:
        """Return the settings filled in, and the data ready to run.

        Raises:
            InputError: the data cannot answer the question; the message says what would.
        """
        prepared: Prepared = self._part("prepare")(spec, source)
        return prepared

    def run(
        self,
        prepared: Any,
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Measure; a repeated run resumes from what the folder keeps.

        Claims of the defenses that are wrong by design are warnings of every room, said first.

        Raises:
            InputError: nothing could be measured.
        """
        doubted = doubted_claims(
            prepared.spec, run=getattr(prepared, "run", None), model=prepared.model
        )
        for text in doubted:
            progress.warn(text)
        answer: Answer = self._part("run")(prepared, folder, progress, workers=workers)
        warnings = list(dict.fromkeys([*doubted, *answer.run.warnings]))
        return replace(answer, run=replace(answer.run, warnings=warnings))

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report."""
        section: Section = self._part("section")(answer, self, folder)
        unsaid = [text for text in answer.run.warnings if text not in section.warnings]
        return replace(section, warnings=[*unsaid, *section.warnings])

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return the figures as plain values."""
        values: dict[str, Any] = self._part("to_json")(answer, folder)
        return values

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card."""
        assessment: Assessment = self._part("assessment")(answer, folder)
        return assessment

    def controls(self, prepared: Any) -> "Controls":
        """Return a run without anything to learn, and one with a planted leak."""
        controls: Controls = self._part("controls")(prepared)
        return controls

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the means of a grid's cells; None without a verdict."""
        badge: Badge | None = self._part("badge")(group)
        return badge

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return the question's own charts for the page of a grid."""
        charts: Sequence[Chart] = self._part("charts")(comparison, groups)
        return charts

    def _part(self, name: str) -> Any:
        module, _, attribute = {**PLACES, **self.places}[name].partition(":")
        inside = module if module.startswith("leakgauge.") else f"{self.home}.{module}"
        return getattr(import_module(inside), attribute)


def doubted_claims(
    spec: Spec, *, run: "Run | None" = None, model: "nn.Module | None" = None
) -> tuple[str, ...]:
    """Return one line for each claim of the settings' defenses that is wrong by design.

    Args:
        spec: settings; those named ``defense`` and ``mechanism`` name defenses.
        run: description of the run, which may hold the number of records.
        model: the model that clients train; None if unknown.
    """
    named = getattr(spec, "defense", ())
    texts = [named] if isinstance(named, str) else [*named]
    # DP-SGD as a mechanism has the clip and the noise of other settings, which its room judges.
    texts += [one for one in [getattr(spec, "mechanism", "")] if one.partition(":")[0] != DPSGD]
    if not any(text and text != NONE for text in texts):
        return ()
    from leakgauge.defenses.coverage import SentArrays
    from leakgauge.defenses.doubts import doubts

    batch, records = getattr(spec, "batch_size", None), run and run.data.get("records")
    return doubts(
        filter(None, texts),
        batch_size=batch if isinstance(batch, int) else None,
        records=records if isinstance(records, int) else None,
        sent=SentArrays() if model is None else SentArrays.of(model),
    )


def no_charts(comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
    """Return no chart."""
    return ()


def no_badge(group: "Group") -> None:
    """Return no verdict."""
