"""The figures and the settings of a run, and the files that hold them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pydantic

from leakgauge.core.checks import InputError
from leakgauge.core.files import read_text, write_text
from leakgauge.core.knowledge import STATIC
from leakgauge.core.versions import versions

MEASUREMENTS_FILE = "measurements.jsonl"
RUN_FILE = "run.yaml"
REPORT_FILE = "report.html"
PICTURES_FILE = "pictures.safetensors"
ROWS_FILE = "rows.json"
ACCUMULATED, STACKED = "accumulated", "stacked"
CHOSEN, HEADLINE = "chosen", "headline"
FIRST = "first-"
ADVERSARY = "adversary"
"""Setting that names the adversaries of a cell."""

MOST = "most"
"""Name of a largest possible value in ``Measurement.theory``."""


def first_rounds(count: int) -> str:
    """Return the ``round`` of a figure that uses the plain sum of the first rounds.

    >>> first_rounds(5)
    'first-5'
    """
    return f"{FIRST}{count}"


def rounds_of(when: int | str) -> int | None:
    """Return the number of rounds in a sum of the first ones; None for any other ``round``.

    >>> rounds_of("first-5"), rounds_of(5), rounds_of("accumulated")
    (5, None, None)
    """
    start, _, count = str(when).partition(FIRST)
    return int(count) if not start and count.isdecimal() else None


SECONDS = "seconds"
"""The metric of computing times, in which equal runs differ."""


@dataclass(frozen=True)
class Estimate:
    """A figure estimated from data, with its interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        n: number of trials (or records) that the figure was computed from.
        confidence: two-sided confidence of the interval.
        unit: what the figure counts, if its name does not say it.
    """

    value: float
    low: float
    high: float
    n: int
    confidence: float = 0.95
    unit: str = ""

    __pydantic_config__: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(allow_inf_nan=False)


@dataclass(frozen=True)
class Histogram:
    """The distribution of the scores of a test, without the single scores.

    Attributes:
        edges: edges of the k bins, ascending, ``[k + 1]``.
        null: number of scores under H0 in each bin.
        alternative: number of scores under H1 in each bin.
    """

    edges: tuple[float, ...]
    null: tuple[int, ...]
    alternative: tuple[int, ...]


@dataclass(frozen=True)
class Measurement:
    """One figure of one cell.

    Attributes:
        question: name of the question, for example ``"inference"``.
        game: ``"property"``, ``"attribute"``, ...
        dataset: name of the data, as the report shows it.
        label: name of what the model predicts.
        secret: name of the protected attribute.
        defense: the defense's name; ``"none"`` without one.
        knowledge: ``"static"`` or ``"adaptive"``: whether the adversary knows the defense.
        adversary: the adversary's name as the user typed it.
        metric: ``"auroc"``, ``"tpr_at_1_fpr"``, ``"success"``, ``"advantage"``, ``"accuracy"``; for
            a guarantee ``"epsilon"``, ``"epsilon_gaussian"``, ...
        round: 1, 2, ... for a single round; ``"first-5"`` for the plain sum of the first five; for
            all rounds ``"accumulated"`` (plain sum), ``"stacked"`` (weighted sum, with weights
            learnt on shadow data), ``"chosen"`` (the reading that shadow data favour) or
            ``"headline"`` (the chosen reading of the adversary that shadow data favour).
        seed: the run's seed.
        estimate: the figure with its interval.
        chance: the metric's value without a leak (for accuracy: the majority class).
        curve: for ``auroc``, points (FPR, TPR) of the ROC, both ascending; for a reconstruction,
            points (iteration, mean figure).
        details: reprs of the objects that computed the figure
            (``"adversary": "Forest(trees=50, ...)"``), and results of automatic choices.
        theory: theoretical values of the same figure, by name; ``"most"`` is the largest possible.
        histogram: for ``epsilon``, the distribution of the scores behind it.
        held_out: the same figure on held-out shadow data, if a choice depends on it.
        versions: versions of the packages that computed the figure.
        seconds: computing time; apart from the figures of the metric ``"seconds"``, the only field
            that differs between equal runs.
    """

    question: str
    game: str
    dataset: str
    label: str
    secret: str
    defense: str
    knowledge: str
    adversary: str
    metric: str
    round: int | str
    seed: int
    estimate: Estimate
    chance: float
    curve: tuple[tuple[float, float], ...] | None = None
    details: Mapping[str, str] = field(default_factory=dict)
    theory: Mapping[str, float] = field(default_factory=dict)
    histogram: Histogram | None = None
    held_out: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class CellContext:
    """The fields that several measurements share; by default those of a static adversary.

    Attributes:
        question: name of the question.
        game: name of the game; empty for the question's name.
        dataset: name of the data.
        label: name of what the model predicts.
        secret: name of the protected attribute.
        defense: name of the defense.
        knowledge: the adversary's knowledge of the defense.
        adversary: name of the adversary.
        round: round of the figures, or all rounds together.
        seed: seed of the run.
        details: reprs of the objects that compute the figures.
        seconds: computing time of the figures.
    """

    question: str
    game: str = ""
    dataset: str
    label: str = ""
    secret: str = ""
    defense: str = "none"
    knowledge: str = STATIC
    adversary: str = ""
    round: int | str = ACCUMULATED
    seed: int
    details: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def measurement(
        self, metric: str, estimate: Estimate, *, chance: float = 0.0, **others: Any
    ) -> Measurement:
        """Return one figure; ``others`` are further fields, or replace those of the context."""
        shared = {**vars(self), "game": self.game or self.question, "versions": versions()}
        return Measurement(
            **{**shared, **others, "metric": metric, "estimate": estimate, "chance": chance}
        )


@dataclass(frozen=True)
class Run:
    """Everything that repeats a run, and the facts about its data that its report shows.

    Attributes:
        command: ``"audit"``, ``"demo"``, ``"guarantee"`` or ``"invert"``.
        settings: all settings by name, as plain values.
        data: name, fingerprint (sha256), records and columns; sizes of the private, public and
            test parts; the secret's values and the number of records of each.
        notes: changes of the data that a reader must know (dropped columns, ...).
        warnings: facts that change the meaning of the figures, each with advice.
        versions: versions of Python, leakgauge and the packages that compute.
        guarantees: guarantees of the defenses that need no measurement, by game and defense:
            ``{game: {defense: {"epsilon": {...} | None, "channel": {...} | None}}}``.
    """

    command: str
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    guarantees: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = field(default_factory=list)


_MEASUREMENT = pydantic.TypeAdapter(Measurement)


def write_measurements(folder: Path, measurements: Iterable[Measurement]) -> None:
    """Write ``measurements.jsonl``, one measurement a line."""
    lines = [json.dumps(asdict(one), sort_keys=True, allow_nan=False) for one in measurements]
    write_text(folder / MEASUREMENTS_FILE, "".join(f"{line}\n" for line in lines))


def read_measurements(folder: Path) -> list[Measurement]:
    """Return the measurements in ``measurements.jsonl``.

    Raises:
        InputError: the file is missing or a line is not a measurement.
    """
    path = folder / MEASUREMENTS_FILE
    if not path.is_file():
        raise InputError(
            f"no {MEASUREMENTS_FILE} in {str(folder)!r}; expected the --out of a finished run"
        )
    measurements = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        try:
            measurements.append(_MEASUREMENT.validate_json(line))
        except pydantic.ValidationError as error:
            message = f"{path}, line {number} is not a measurement: {_first(error)}"
            raise InputError(message) from error
    return measurements


def _first(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
