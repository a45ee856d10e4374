"""The folder of a grid: one record set for each cell, under a name made of all that it depends on.

``cells/KEY/`` appears whole or not at all, so a kill at any moment leaves finished cells only.
Equal runs leave equal ``cells/`` and ``grid.yaml``; what differs between them, the seconds, stands
apart in ``timings.json``. ``work/`` holds cells that are being played.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic
import yaml
from filelock import FileLock

from leakgauge.core.checks import InputError, require
from leakgauge.results.measurements import (
    MEASUREMENTS_FILE,
    Measurement,
    read_measurements,
    write_measurements,
    write_text,
)

GRID_FILE = "grid.yaml"
CELL_FILE = "cell.yaml"
TIMINGS_FILE = "timings.json"
LOCKS = ".locks"


class _Described(pydantic.BaseModel):
    """What ``grid.yaml`` must say; the rows of ``paper`` are for whoever shows them."""

    name: str
    size: str
    asked: int
    cells: list[str]
    grids: list[list[str]]
    paper: list[dict[str, Any]]


def key_of(identity: Mapping[str, Any]) -> str:
    """The sha256, in hex, of plain values; it does not depend on the order of their names.

    >>> key_of({"seed": 0, "ask": "property"}) == key_of({"ask": "property", "seed": 0})
    True
    >>> key_of({"seed": 0}) == key_of({"seed": 1})
    False
    """
    text = json.dumps(identity, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class CellStore:
    """The folder of one grid.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: Path, description: Mapping[str, Any]) -> "CellStore":
        """Take a new or empty folder, or go on in one that holds this grid at this size.

        Args:
            path: the folder.
            description: ``name``, ``size`` and what else ``grid.yaml`` shall say.

        Raises:
            InputError: the folder cannot be written, or holds something else.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            found = sorted(child.name for child in path.iterdir() if not child.name.startswith("."))
            if GRID_FILE in found:
                _refuse_other(path, read_description(path), description)
            else:
                require(
                    not found,
                    f"{str(path)!r} holds other files ({', '.join(found[:3])}) and no grid; choose "
                    "another --out",
                )
            text = yaml.safe_dump(dict(description), sort_keys=False, allow_unicode=True)
            write_text(path / GRID_FILE, text)
        except OSError as error:
            raise InputError(
                f"cannot write to {str(path)!r} ({error.strerror}); choose another --out"
            ) from error
        return cls(path)

    def has(self, key: str) -> bool:
        """Whether the cell is finished."""
        return (self._cell(key) / MEASUREMENTS_FILE).is_file()

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Wait until no other process plays the cell: one that a kill left behind may still."""
        locks = self.path / LOCKS
        locks.mkdir(exist_ok=True)
        with FileLock(locks / key):
            yield

    def working(self, key: str) -> Path:
        """A folder for what is not finished, kept until the cell is."""
        return self.path / "work" / key

    def keep(self, key: str, identity: Mapping[str, Any], records: Sequence[Measurement]) -> None:
        """Keep a finished cell; what it took is left out, as it differs between equal runs."""
        part = self.working(key) / "finished"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        text = yaml.safe_dump(dict(identity), sort_keys=True, allow_unicode=True)
        write_text(part / CELL_FILE, text)
        write_measurements(part, [replace(record, seconds=0.0) for record in records])
        self._cell(key).parent.mkdir(exist_ok=True)
        try:
            os.replace(part, self._cell(key))
        except OSError:
            if not self.has(key):  # else another process was faster, with the same content
                raise
        self.forget(key)

    def forget(self, key: str) -> None:
        """Remove what a cell left while it was being played."""
        shutil.rmtree(self.working(key), ignore_errors=True)
        with contextlib.suppress(OSError):  # other cells are being played there
            self.working(key).parent.rmdir()

    def read(self, key: str) -> tuple[dict[str, Any], list[Measurement]]:
        """What a finished cell is, and its records.

        Raises:
            InputError: it is not finished, or was damaged.
        """
        folder = self._cell(key)
        mend = f"remove the folder {str(folder)!r} and run the grid again"
        try:
            identity, records = _yaml(folder / CELL_FILE), read_measurements(folder)
        except InputError as error:
            raise InputError(f"{error}; {mend}") from error
        require(_names(identity, key), f"{str(folder / CELL_FILE)!r} was changed; {mend}")
        require(bool(records), f"{str(folder / MEASUREMENTS_FILE)!r} is empty; {mend}")
        return identity, records

    @property
    def seconds(self) -> dict[str, float]:
        """What each finished cell took, where it is known."""
        try:
            found: dict[str, float] = json.loads((self.path / TIMINGS_FILE).read_text("utf-8"))
        except (OSError, ValueError):  # an estimate of the time left is all that hangs on it
            return {}
        return found

    def keep_seconds(self, key: str, seconds: float) -> None:
        """Note what a cell took. One process does this."""
        write_text(self.path / TIMINGS_FILE, json.dumps({**self.seconds, key: round(seconds, 3)}))

    def _cell(self, key: str) -> Path:
        return self.path / "cells" / key


def read_description(path: Path) -> dict[str, Any]:
    """What ``grid.yaml`` says.

    Raises:
        InputError: the file is missing or is not one that a run wrote.
    """
    require(
        (path / GRID_FILE).is_file(), f"no {GRID_FILE} in {str(path)!r}; expected a grid's --out"
    )
    found = _yaml(path / GRID_FILE)
    try:
        _Described.model_validate(found)
    except pydantic.ValidationError as error:
        problem = error.errors()[0]
        raise InputError(
            f"{str(path / GRID_FILE)!r} is damaged ({'.'.join(map(str, problem['loc']))}: "
            f"{problem['msg'].lower()}); expected what a run wrote"
        ) from error
    return found


def _names(identity: Mapping[str, Any], key: str) -> bool:
    """Whether the key is that of these values; YAML can also hold what no run wrote."""
    try:
        return key_of(identity) == key
    except (TypeError, ValueError):
        return False


def _refuse_other(path: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    for name in ("name", "size"):
        require(
            there[name] == here[name],
            f"{str(path)!r} holds another grid ({name} is {there[name]!r} there, {here[name]!r} "
            "here); choose another --out",
        )


def _yaml(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} cannot be read ({reason}); expected what a run wrote") from error
    require(isinstance(found, dict), f"{str(path)!r} is damaged; expected what a run wrote")
    whole: dict[str, Any] = found
    return whole
