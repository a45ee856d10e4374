"""The folder of an audit or a grid: finished cells, and cells that are being played.

``run.yaml`` says what the folder is. ``cells/KEY/`` appears whole or not at all, so a kill at any
moment leaves finished cells only; ``work/KEY/`` holds the checkpoints of an unfinished one. Equal
runs leave equal ``cells/`` and ``run.yaml``; the seconds, which differ, stand in ``timings.json``.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic
from filelock import FileLock

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_yaml, write_text, write_yaml
from leakgauge.results.measurements import (
    MEASUREMENTS_FILE,
    RUN_FILE,
    Run,
    read_measurements,
    write_measurements,
)
from leakgauge.runs.question import Answer
from leakgauge.runs.work import WorkFolder

CELL_FILE = "cell.yaml"
TIMINGS_FILE = "timings.json"
LOCKS = ".locks"
OWNER_ONLY = 0o700
"""The mode of a new folder: reports and measurements tell of private records."""
GRID = "run"
"""The command whose folder holds a grid."""


@dataclass(frozen=True)
class Description:
    """What ``run.yaml`` says of a folder.

    Attributes:
        command: that made it.
        settings: of an audit, the settings by question; of a grid, what its file says.
        cells: keys of the cells: of an audit, names of questions.
        data: name and fingerprint; empty for a grid, whose cells have their own.
        versions: of the packages that compute.
        repeat: the command that repeats it.
        notes: what was decided before the first cell, such as questions that the data do not allow.
    """

    command: str
    settings: Mapping[str, Any]
    cells: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    repeat: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_grid(self) -> bool:
        """Whether the folder holds a grid."""
        return self.command == GRID

    @property
    def identity(self) -> dict[str, Any]:
        """What must be equal for a command to go on in the folder."""
        if self.is_grid:
            return {name: self.settings.get(name) for name in ("name", "size")}
        parts = {"settings": self.settings, "data": self.data, "versions": self.versions}
        whole: dict[str, Any] = json.loads(json.dumps(parts))
        return whole


_DESCRIPTION = pydantic.TypeAdapter(Description)
_RUN = pydantic.TypeAdapter(Run)


class Store:
    """The folder of one audit or grid.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: Path, description: Description) -> "Store":
        """Take a new or empty folder, or go on in one with the same description.

        Raises:
            InputError: the folder cannot be written, or holds something else.
        """
        try:
            path.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY)
            present = sorted(one.name for one in path.iterdir() if not one.name.startswith("."))
            if RUN_FILE in present:
                _refuse_other(path, read_description(path), description)
            else:
                require(
                    not present,
                    f"{str(path)!r} holds other files ({', '.join(present[:3])}) and no run; "
                    "choose another --out",
                )
            write_yaml(path / RUN_FILE, asdict(description))
        except OSError as error:
            raise InputError(
                f"cannot write to {str(path)!r} ({error.strerror}); choose another --out"
            ) from error
        return cls(path)

    def has(self, key: str) -> bool:
        """Return whether the cell is finished."""
        return (self.folder(key) / MEASUREMENTS_FILE).is_file()

    def folder(self, key: str) -> Path:
        """Return the folder of a finished cell."""
        return self.path / "cells" / key

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Wait until no other process plays the cell: one that a kill left behind may still."""
        locks = self.path / LOCKS
        locks.mkdir(exist_ok=True)
        with FileLock(locks / key):
            yield

    def work(self, key: str) -> WorkFolder:
        """Return the folder for what is not finished, kept until the cell is."""
        return WorkFolder(self.path / "work" / key)

    def keep(
        self, key: str, identity: Mapping[str, Any], answer: Answer, *, timed: bool = True
    ) -> None:
        """Keep a finished cell.

        Args:
            key: its name.
            identity: all that its figures depend on.
            answer: of the question.
            timed: whether to keep the seconds, in which equal runs differ.
        """
        part = self.work(key).files
        cell = {
            "identity": dict(identity),
            "sha256": key_of(identity),
            "run": asdict(answer.run),
            "missing": list(answer.missing),
        }
        write_yaml(part / CELL_FILE, cell)
        figures = answer.measurements
        write_measurements(
            part, figures if timed else [replace(one, seconds=0.0) for one in figures]
        )
        self.folder(key).parent.mkdir(exist_ok=True)
        try:
            os.replace(part, self.folder(key))
        except OSError:
            if not self.has(key):  # else another process was faster, with the same content
                raise
        self.forget(key)

    def forget(self, key: str) -> None:
        """Remove what a cell left while it was being played."""
        shutil.rmtree(self.work(key).path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other cells are being played there
            self.work(key).path.parent.rmdir()

    def read(self, key: str) -> tuple[dict[str, Any], Answer]:
        """Return what a finished cell depends on, and its answer.

        Raises:
            InputError: it is not finished, or was damaged.
        """
        folder = self.folder(key)
        remedy = f"remove the folder {str(folder)!r} and run the command again"
        try:
            cell, measurements = read_yaml(folder / CELL_FILE), read_measurements(folder)
            identity, run = cell["identity"], _RUN.validate_python(cell["run"])
            sound = key_of(identity) == cell["sha256"]
            missing = tuple(map(str, cell["missing"]))
        except InputError as error:
            raise InputError(f"{error}; {remedy}") from error
        except (KeyError, TypeError, ValueError, pydantic.ValidationError) as error:
            raise InputError(f"{str(folder / CELL_FILE)!r} is damaged; {remedy}") from error
        require(sound, f"{str(folder / CELL_FILE)!r} was changed; {remedy}")
        empty = not measurements and not missing
        require(not empty, f"{str(folder / MEASUREMENTS_FILE)!r} is empty; {remedy}")
        return identity, Answer(run, measurements, missing)

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that each finished cell took, where they are known."""
        try:
            known: dict[str, float] = json.loads((self.path / TIMINGS_FILE).read_text("utf-8"))
        except (OSError, ValueError):  # only the estimate of the time left depends on it
            return {}
        return known

    def keep_seconds(self, key: str, seconds: float) -> None:
        """Keep the seconds that a cell took. One process does this."""
        write_text(self.path / TIMINGS_FILE, json.dumps({**self.seconds, key: round(seconds, 3)}))


def key_of(identity: Mapping[str, Any]) -> str:
    """Return the sha256, in hex, of plain values; it does not depend on the order of names.

    >>> key_of({"seed": 0, "ask": "a"}) == key_of({"ask": "a", "seed": 0})
    True
    >>> key_of({"seed": 0}) == key_of({"seed": 1})
    False
    """
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_description(path: Path) -> Description:
    """Read ``run.yaml``.

    Raises:
        InputError: the file is missing or is not one that a run wrote.
    """
    file = path / RUN_FILE
    require(file.is_file(), f"no {RUN_FILE} in {str(path)!r}; expected the --out of a run")
    try:
        return _DESCRIPTION.validate_python(read_yaml(file))
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise InputError(
            f"{str(file)!r} is damaged ({where}: {problem['msg'].lower()}); expected what a run "
            "wrote"
        ) from error


def first_difference(there: Any, here: Any, where: str = "") -> str | None:
    """Return the first place at which two plain values differ, in words.

    >>> first_difference({"seed": 0}, {"seed": 1})
    'seed is 0 there, 1 here'
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for key in [*there, *(key for key in here if key not in there)]:
            difference = first_difference(there.get(key), here.get(key), str(key))
            if difference:
                return difference
        return None
    return None if there == here else f"{where} is {there!r} there, {here!r} here"


def _refuse_other(path: Path, there: Description, here: Description) -> None:
    if there.is_grid != here.is_grid:
        difference: str | None = f"it is of leakgauge {there.command}"
    else:
        difference = first_difference(there.identity, here.identity)
    require(
        difference is None,
        f"{str(path)!r} holds another run ({difference}); choose another --out",
    )
