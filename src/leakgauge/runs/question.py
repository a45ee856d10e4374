"""The protocol of a question: what a room gives to the commands, the store and the report."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from leakgauge.core.versions import versions
from leakgauge.runs.spec import Spec, identifying

if TYPE_CHECKING:  # These load torch or matplotlib, which --help need not wait for.
    from torch import nn

    from leakgauge.data.source import Source
    from leakgauge.report.compare import Comparison, Group
    from leakgauge.report.section import Badge, Chart, Section
    from leakgauge.results.measurements import Measurement, Run
    from leakgauge.results.metrics import Metric
    from leakgauge.runs.assessment import Assessment, Controls
    from leakgauge.runs.work import WorkFolder


class Progress(Protocol):
    """Receives the messages of a running question."""

    def step(self, what: str, done: int, of: int, note: str = "") -> None:
        """Report that ``done`` of ``of`` parts of ``what`` are finished; ``note`` follows."""
        ...

    def note(self, text: str) -> None:
        """Report what a user should know before the results."""
        ...

    def warn(self, text: str) -> None:
        """Report what limits the meaning of the results."""
        ...

    def early(self, make: Callable[[], str]) -> None:
        """Report a figure before the results; ``make`` is called only where somebody reads it."""
        ...


class Silent:
    """Progress without output."""

    def step(self, what: str, done: int, of: int, note: str = "") -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def warn(self, text: str) -> None:
        """Do nothing."""

    def early(self, make: Callable[[], str]) -> None:
        """Do nothing."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """The settings and the data of a question, ready to run; a question adds its own in a subclass.

    Attributes:
        spec: settings with everything filled in that the data decide.
        source: the data.
    """

    spec: Any
    source: "Source"

    @property
    def model(self) -> "nn.Module | None":
        """The model that clients train; None where it is made in the run."""
        task = getattr(self, "task", self.source.task)
        return None if task is None else task.model

    def inputs(self) -> dict[str, str]:
        """Return the digest of each input besides the data and the settings' code, by its name."""
        return {}

    def identity(self) -> dict[str, Any]:
        """Return everything that the figures depend on, as plain values."""
        inputs = self.inputs()
        return {
            "settings": identifying(self.spec),
            "fingerprint": self.source.fingerprint,
            "versions": versions(),
            **({"inputs": inputs} if inputs else {}),
        }


@dataclass(frozen=True)
class Answer:
    """What one question gives for one ``Spec``.

    Attributes:
        run: the settings, facts about the data, notes and versions behind the measurements.
        measurements: one per figure.
        missing: for each part that was requested and not completed, what and why.
        stopped: whether the user stopped it before its end; it is not kept as finished then.
    """

    run: "Run"
    measurements: "Sequence[Measurement]"
    missing: tuple[str, ...] = ()
    stopped: bool = False


class Question(Protocol):
    """One question of an audit. Its room holds the mathematics, the run and the section.

    Attributes:
        name: one word: ``Measurement.question``, the prefix of ``--set`` and the section's anchor.
        title: the question as a sentence.
        asks: the words that ``--ask`` takes for it, with one line of help each; often the name
            alone.
        Spec: its settings.
        metrics: the metrics that it may measure, the most telling one first.
    """

    @property
    def name(self) -> str:
        """One word for the question."""
        ...

    @property
    def title(self) -> str:
        """The question as a sentence."""
        ...

    @property
    def asks(self) -> Mapping[str, str]:
        """One line of help for each word of ``--ask``."""
        ...

    @property
    def Spec(self) -> type[Spec]:  # noqa: N802 - a class
        """The class of its settings."""
        ...

    @property
    def metrics(self) -> "Mapping[str, Metric]":
        """The metrics by name."""
        ...

    def check(self, spec: Any) -> None:
        """Refuse settings that are wrong for any data.

        Raises:
            InputError: a value is outside its bounds, or settings contradict each other.
        """
        ...

    def prepare(self, spec: Any, source: "Source") -> Any:
        """Return a ``Prepared``: the settings filled in, and the data ready to run.

        Args:
            spec: settings that ``check`` accepted.
            source: the data.

        Raises:
            InputError: the data cannot answer the question; the message says what would.
        """
        ...

    def run(
        self,
        prepared: Any,
        folder: "WorkFolder",
        progress: Progress,
        *,
        workers: int | None = None,
    ) -> Answer:
        """Measure. A repeated run resumes from what ``folder`` keeps.

        Args:
            prepared: what ``prepare`` returned.
            folder: place of checkpoints, and of files that the section shows.
            progress: receives finished parts, notes and warnings.
            workers: number of processes; None chooses a number from the amount of work.

        Raises:
            InputError: nothing could be measured.
        """
        ...

    def section(self, answer: Answer, folder: Path) -> "Section":
        """Return the section of the report; it reads measurements and computes none.

        Args:
            answer: answer of ``run``, or the one that the store keeps.
            folder: with the files that ``run`` kept.
        """
        ...

    def to_json(self, answer: Answer, folder: Path) -> dict[str, Any]:
        """Return the figures as plain values for ``--json``."""
        ...

    def assessment(self, answer: Answer, folder: Path) -> "Assessment":
        """Return threat, tests, promises and limits for an audit card; it computes no figure."""
        ...

    def controls(self, prepared: Any) -> "Controls":
        """Return a run without anything to learn, and one with a planted leak.

        Args:
            prepared: what ``prepare`` returned.
        """
        ...

    def badge(self, group: "Group") -> "Badge | None":
        """Return the verdict on the means of a grid's cells; None without one."""
        ...

    def charts(self, comparison: "Comparison", groups: "Sequence[Group]") -> "Sequence[Chart]":
        """Return the question's charts for the page of a grid; often none."""
        ...


Asked = Mapping[str, tuple[Question, Spec]]
"""The questions of an audit by name, each with its settings."""


def answering(key: str, questions: Mapping[str, Question]) -> Question | None:
    """Return the question that an answer's key names, under that name; None for an unknown one.

    A question that is asked several times has a number behind its name: ``NAME-2``.
    """
    name, _, number = key.rpartition("-")
    if key in questions or not number.isdigit() or name not in questions:
        return questions.get(key)
    again = copy.copy(questions[name])
    object.__setattr__(again, "name", key)
    return again


def ask_of(one: "Measurement", question: Question) -> str:
    """Return the word of ``--ask`` that a figure of a question answers."""
    return one.game if one.game in question.asks else next(iter(question.asks))


def question_of(ask: str, questions: Mapping[str, Question]) -> Question | None:
    """Return the question that ``--ask`` names, or None where no question has that word."""
    return next((one for one in questions.values() if ask in one.asks), None)
