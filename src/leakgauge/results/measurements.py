"""The figures and the settings of a run, and the files that hold them."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pydantic

from leakgauge.core.checks import InputError

MEASUREMENTS_FILE = "measurements.jsonl"
RUN_FILE = "run.yaml"
REPORT_FILE = "report.html"
PICTURES_FILE = "pictures.safetensors"
ROWS_FILE = "rows.json"
ACCUMULATED, STACKED = "accumulated", "stacked"
CHOSEN, HEADLINE = "chosen", "headline"
FIRST = "first-"


def first_rounds(count: int) -> str:
    """Return the ``round`` of a figure that is read from the plain sum of the first rounds.

    >>> first_rounds(5)
    'first-5'
    """
    return f"{FIRST}{count}"


def rounds_of(when: int | str) -> int | None:
    """Return how many rounds a sum of the first ones has; None for any other ``round``.

    >>> rounds_of("first-5"), rounds_of(5), rounds_of("accumulated")
    (5, None, None)
    """
    start, _, count = str(when).partition(FIRST)
    return int(count) if not start and count.isdecimal() else None


SECONDS = "seconds"
"""The metric whose figures are computing times: equal runs differ in them."""


@dataclass(frozen=True)
class Estimate:
    """A figure that is estimated from data, with its interval.

    Attributes:
        value: the point estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        n: number of trials (or records) that the figure was computed from.
        confidence: of the interval, two-sided.
        unit: what the figure counts, where its name does not say it.
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
        edges: of the bins, ascending, one more than there are bins.
        null: how many scores under H0 fall into each bin.
        alternative: how many scores under H1 fall into each bin.
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
        secret: name of what nobody should learn.
        defense: the defense's name; ``"none"`` without one.
        knowledge: ``"static"`` or ``"adaptive"``: what the adversary knows of the defense.
        adversary: the adversary's name as the user typed it.
        metric: ``"auroc"``, ``"tpr_at_1_fpr"``, ``"success"``, ``"advantage"``, ``"accuracy"``; of
            a guarantee ``"epsilon"``, ``"epsilon_gaussian"``, ...
        round: 1, 2, ... for a single round; ``"first-5"`` for the plain sum of the first five; over
            all of them, ``"accumulated"`` (their plain
            sum), ``"stacked"`` (weighted, with weights learnt on shadow data), ``"chosen"`` (that
            of these readings which shadow data favour) or ``"headline"`` (the chosen reading of
            the adversary that shadow data favour).
        seed: the run's seed.
        estimate: the figure with its interval.
        chance: the metric's value where nothing leaks (for accuracy: the majority class).
        curve: for ``auroc``, points (FPR, TPR) of the ROC, both ascending; of a reconstruction,
            points (iteration, mean figure).
        details: reprs of the objects that computed the figure
            (``"adversary": "Forest(trees=50, ...)"``), and results of automatic choices.
        theory: values of the same figure that follow from theory, by name.
        histogram: for ``epsilon``, of the scores that it was computed from.
        held_out: the same figure of held-out shadow data, where a choice looks at it.
        versions: of the packages that computed it.
        seconds: computing time; the only field that differs between equal runs, but for the figure
            of the metric ``"seconds"``.
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


@dataclass(frozen=True)
class Run:
    """Everything that repeats a run, and the facts about its data that its report shows.

    Attributes:
        command: ``"audit"``, ``"demo"``, ``"guarantee"`` or ``"invert"``.
        settings: all settings by name, as plain values.
        data: name, fingerprint (sha256), records and columns; sizes of the private, public and
            test parts; the secret's values and the number of records of each.
        notes: changes of the data that a reader must know (dropped columns, ...).
        warnings: what makes the figures mean something else, each with what to do.
        versions: of Python, leakgauge and the packages that compute.
        guarantees: by game and defense, what the defense guarantees without any measurement:
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


def write_text(path: Path, text: str) -> None:
    """Write a file in one step; a kill leaves the old file in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


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
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            measurements.append(_MEASUREMENT.validate_json(line))
        except pydantic.ValidationError as error:
            message = f"{path}, line {number} is not a measurement: {_first(error)}"
            raise InputError(message) from error
    return measurements


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); expected what a run wrote") from error


def _first(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
