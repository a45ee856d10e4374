"""The folder of an audit or a grid: finished cells, and cells that are running.

``run.yaml`` says what the folder is. ``cells/KEY/`` appears whole or not at all, so a kill at any
moment leaves finished cells only; ``work/KEY/`` holds the checkpoints of an unfinished one. Equal
grids leave equal ``cells/`` and ``run.yaml``; the times, which differ, stand in ``timings.json``.

``run.yaml`` and ``cell.yaml`` are sealed (``core.files``), and ``cell.yaml`` has the checksum of
each other file of its cell. A reader refuses what was damaged; a repeated command makes it anew.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pydantic
from filelock import FileLock

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import DamagedError, checksum_of, read_yaml, write_yaml
from leakgauge.results.measurements import (
    MEASUREMENTS_FILE,
    RUN_FILE,
    SECONDS,
    Measurement,
    Run,
    read_measurements,
    write_measurements,
)
from leakgauge.runs.changes import first_difference
from leakgauge.runs.question import Answer
from leakgauge.runs.work import Say, WorkFolder, in_silence

CELL_FILE = "cell.yaml"
LOCKS = ".locks"
OWNER_ONLY = 0o700
"""Mode of a new folder, as reports and measurements are about private records."""
GRID = "run"
"""Command whose folder holds a grid."""


@dataclass(frozen=True)
class Description:
    """The content of ``run.yaml``.

    Attributes:
        command: command that made the folder.
        settings: settings of an audit by question, or the content of a grid's file.
        cells: keys of the cells; those of an audit are names of questions.
        data: name and fingerprint; empty for a grid, whose cells name their data.
        versions: versions of the packages that compute.
        repeat: the command that repeats it.
        notes: what was decided before the first cell, such as questions that the data do not allow.
        identities: sha256 of everything that each cell of an audit depends on; in a grid that is
            the key of the cell.
    """

    command: str
    settings: Mapping[str, Any]
    cells: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    repeat: str = ""
    notes: tuple[str, ...] = ()
    identities: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_grid(self) -> bool:
        """Whether the folder holds a grid."""
        return self.command == GRID

    @property
    def identity(self) -> dict[str, Any]:
        """The values that must be equal for a command to resume in the folder."""
        if self.is_grid:
            return {name: self.settings.get(name) for name in ("name", "size")}
        parts = {"settings": self.settings, "data": self.data, "versions": self.versions}
        return _plain(parts)


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
    def claim(cls, path: Path, description: Description, say: Say = in_silence) -> "Store":
        """Take a new or empty folder, or resume in one with the same description.

        A damaged description is written anew, as each cell has an identity.

        Args:
            path: the folder.
            description: description of the run.
            say: gets a note if the description in the folder is damaged.

        Raises:
            InputError: the folder cannot be written, or holds something else.
        """
        try:
            path.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY)
            present = sorted(one.name for one in path.iterdir() if not one.name.startswith("."))
            if RUN_FILE in present:
                _resume(path, description, say)
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
        """Wait until no other process runs the cell, as one that a kill left behind may."""
        locks = self.path / LOCKS
        locks.mkdir(exist_ok=True)
        with FileLock(locks / key):
            yield

    def work(
        self, key: str, say: Say = in_silence, *, identity: Mapping[str, Any] | None = None
    ) -> WorkFolder:
        """Return the folder of an unfinished cell.

        Args:
            key: the cell's name.
            say: gets a note about each checkpoint that cannot be used.
            identity: everything that its figures depend on; checkpoints of another are dropped.
        """
        mark = "" if identity is None else key_of(identity)
        return WorkFolder(self.path / "work" / key, say, identity=mark)

    def keep(
        self, key: str, identity: Mapping[str, Any], answer: Answer, *, timed: bool = True
    ) -> None:
        """Keep a finished cell.

        Args:
            key: its name.
            identity: everything that its figures depend on.
            answer: answer of the question.
            timed: whether to keep the seconds and the figures of time, in which equal runs differ.
        """
        part = self.work(key).files
        cell = {
            "identity": dict(identity),
            "run": asdict(answer.run),
            "missing": list(answer.missing),
        }
        figures = answer.measurements if timed else _timeless(answer.measurements)
        write_measurements(part, figures)
        write_yaml(part / CELL_FILE, {"key": key, **cell, "files": _checksums(part)})
        self.place(key)

    def place(self, key: str) -> None:
        """Move the files of a cell, all of them written, from its work to the finished cells."""
        part = self.work(key).files
        self.folder(key).parent.mkdir(exist_ok=True)
        try:
            os.replace(part, self.folder(key))
        except OSError:
            if not self.has(key):  # else another process was faster, with the same content
                raise
        self.forget(key)

    def forget(self, key: str) -> None:
        """Remove the unfinished work of a cell."""
        shutil.rmtree(self.work(key).path, ignore_errors=True)
        with contextlib.suppress(OSError):  # other cells are running there
            self.work(key).path.parent.rmdir()

    def read(self, key: str) -> tuple[dict[str, Any], Answer]:
        """Return what a finished cell depends on, and its answer.

        Raises:
            InputError: it is not finished, was damaged, or is another cell's.
        """
        try:
            return self._read(key)
        except InputError as error:
            raise InputError(f"{error}; repeat the command of the run to make it anew") from error

    def kept(self, key: str, identity: Mapping[str, Any], say: Say = in_silence) -> Answer | None:
        """Return the answer of a finished cell; one that cannot be used is removed.

        Args:
            key: its name.
            identity: everything that its figures depend on.
            say: gets a note about a cell that was damaged or is another's.

        Returns:
            None if the cell must run.
        """
        if not self.folder(key).exists():
            return None
        try:
            found, answer = self._read(key)
            if key_of(found) != key_of(identity):
                why = first_difference(found, _plain(identity))
                raise DamagedError(f"{str(self.folder(key))!r} belongs to another run ({why})")
        except InputError as error:
            say(f"{error}; this cell runs again")
            shutil.rmtree(self.folder(key), ignore_errors=True)
            return None
        return answer

    def _read(self, key: str) -> tuple[dict[str, Any], Answer]:
        folder = self.folder(key)
        cell = read_yaml(folder / CELL_FILE)
        try:
            own, files, identity = cell["key"], cell["files"], cell["identity"]
            run, missing = _RUN.validate_python(cell["run"]), tuple(map(str, cell["missing"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{str(folder / CELL_FILE)!r} is damaged") from error
        if own != key:
            raise DamagedError(f"{str(folder)!r} belongs to another run: it is the cell {own!r}")
        _check_files(folder, files)
        return identity, Answer(run, read_measurements(folder), missing)


def files_of(store: Store, name: str) -> Path:
    """Return the folder of the files that a question kept, also if the user stopped it."""
    return store.folder(name) if store.has(name) else store.work(name).files


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
        return _description(file)
    except DamagedError as error:
        raise InputError(f"{error}; repeat the command of the run to write it anew") from error


def _description(file: Path) -> Description:
    try:
        return _DESCRIPTION.validate_python(read_yaml(file))
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"]))
        raise DamagedError(
            f"{str(file)!r} is damaged ({where}: {problem['msg'].lower()})"
        ) from error


def _timeless(figures: Iterable[Measurement]) -> list[Measurement]:
    """Return the figures in which equal runs agree, without their durations."""
    return [replace(one, seconds=0.0) for one in figures if one.metric != SECONDS]


def _checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a cell by name, without description and hidden files."""
    names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
    return {name: checksum_of(folder / name) for name in names if name != CELL_FILE}


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    found = _checksums(folder)
    for name in dict.fromkeys([*files, *found]):
        place = repr(str(folder / name))
        if name not in found:
            raise DamagedError(f"{place} is missing")
        if name not in files:
            raise DamagedError(f"{place} is no file of this run")
        if files[name] != found[name]:
            raise DamagedError(f"{place} is damaged or was changed: it does not match its checksum")


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON reads them back."""
    whole: dict[str, Any] = json.loads(json.dumps(values))
    return whole


def _resume(path: Path, description: Description, say: Say) -> None:
    try:
        there = _description(path / RUN_FILE)
    except DamagedError as error:
        say(f"{error}; it is written anew")
    else:
        _refuse_other(path, there, description)


def _refuse_other(path: Path, there: Description, here: Description) -> None:
    if there.is_grid != here.is_grid:
        difference: str | None = f"it is of leakgauge {there.command}"
    else:
        difference = first_difference(there.identity, here.identity)
    require(
        difference is None,
        f"{str(path)!r} holds another run ({difference}); choose another --out",
    )
