"""What an audit found, one record a figure, and how it is written down."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pydantic
import yaml

from leakgauge.core.checks import InputError

MEASUREMENTS_FILE = "measurements.jsonl"
RUN_FILE = "run.yaml"
REPORT_FILE = "report.html"
PICTURES_FILE = "pictures.safetensors"
ROWS_FILE = "rows.json"
ACCUMULATED, STACKED = "accumulated", "stacked"


@dataclass(frozen=True)
class Estimate:
    """A figure that was estimated from data.

    Attributes:
        value: the point estimate; low and high bound its interval.
        confidence: of the interval, two-sided.
        n: the number of trials (or records) behind it.
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
    """How the scores of a test lie, without their single values.

    Attributes:
        edges: of the bins, ascending, one more than there are bins.
        null: how many scores under H0 fall into each bin.
        alternative: as many under H1.
    """

    edges: tuple[float, ...]
    null: tuple[int, ...]
    alternative: tuple[int, ...]


@dataclass(frozen=True)
class Measurement:
    """One figure of one cell.

    Attributes:
        question: the room that asked, for example ``"inference"``.
        game: ``"property"``, ``"attribute"``, ...
        dataset: the data's name, label, secret: as the report shows them.
        defense: the defense's name; ``"none"`` without one.
        knowledge: ``"static"`` or ``"adaptive"``: what the adversary knew of the defense.
        adversary: the adversary's name as asked for.
        metric: ``"auroc"``, ``"tpr_at_1_fpr"``, ``"success"``, ``"advantage"``, ``"accuracy"``; of
            a guarantee ``"epsilon"``, ``"epsilon_gaussian"``, ...
        round: 1, 2, ... for a single round; over all of them, ``"accumulated"`` (their plain
            sum) or ``"stacked"`` (weighted, with weights learnt on shadow data).
        seed: the run's seed.
        estimate: the figure with its interval.
        chance: what the metric shows where nothing leaks (for accuracy: the majority class).
        curve: for ``auroc``, points (FPR, TPR) of the ROC, both ascending; of a reconstruction,
            points (iteration, mean figure).
        details: reprs of what was used (``"adversary": "Forest(trees=50, ...)"``), or what an
            automatic choice picked.
        theory: what is known of the same figure without a measurement, by name.
        histogram: for ``epsilon``, of the scores behind it.
        versions: of the packages that computed it.
        seconds: what it took; the one field that differs between equal runs.
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
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class Run:
    """Everything that is needed to repeat a run, and what its report says of its origin.

    Attributes:
        command: ``"audit"``, ``"demo"``, ``"guarantee"`` or ``"invert"``.
        settings: every setting by name, plain values.
        data: name, fingerprint (sha256), records and columns; sizes of the private, public and
            test parts; the secret's values; how many records of each.
        notes: what was done to the data and should be known (dropped columns, ...).
        versions: of Python, leakgauge and the packages that compute.
        guarantees: by game and defense, what is known of the defense without any measurement:
            ``{game: {defense: {"epsilon": {...} | None, "channel": {...} | None}}}``.
    """

    command: str
    settings: Mapping[str, Any]
    data: Mapping[str, Any]
    notes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    guarantees: Mapping[str, Any] = field(default_factory=dict)


_RECORD = pydantic.TypeAdapter(Measurement)
_RUN = pydantic.TypeAdapter(Run)


def write_text(path: Path, text: str) -> None:
    """Write a whole file or none of it: a kill leaves the old one in place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def write_measurements(folder: Path, records: Iterable[Measurement]) -> None:
    """Write ``measurements.jsonl``, one record a line."""
    lines = [json.dumps(asdict(record), sort_keys=True, allow_nan=False) for record in records]
    write_text(folder / MEASUREMENTS_FILE, "".join(f"{line}\n" for line in lines))


def read_measurements(folder: Path) -> list[Measurement]:
    """Read ``measurements.jsonl``.

    Raises:
        InputError: the file is missing or a line is no record.
    """
    path = folder / MEASUREMENTS_FILE
    if not path.is_file():
        raise InputError(
            f"no {MEASUREMENTS_FILE} in {str(folder)!r}; expected the --out of a finished run"
        )
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            records.append(_RECORD.validate_json(line))
        except pydantic.ValidationError as error:
            raise InputError(f"{path}, line {number} is no record: {_first(error)}") from error
    return records


def write_run(folder: Path, run: Run) -> None:
    """Write ``run.yaml``."""
    plain = json.loads(json.dumps(asdict(run)))
    write_text(folder / RUN_FILE, yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def read_run(folder: Path) -> Run:
    """Read ``run.yaml``.

    Raises:
        InputError: the file is missing or is not one that ``write_run`` wrote.
    """
    path = folder / RUN_FILE
    if not path.is_file():
        raise InputError(f"no {RUN_FILE} in {str(folder)!r}; expected the --out of a run")
    try:
        return _RUN.validate_python(yaml.safe_load(_text(path)))
    except pydantic.ValidationError as error:
        raise InputError(f"{path} is not the description of a run: {_first(error)}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); expected what a run wrote") from error


def _first(error: pydantic.ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
