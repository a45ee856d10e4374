"""Finds the folders of runs, and gives each a label."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leakgauge.core.checks import require
from leakgauge.results.measurements import RUN_FILE


@dataclass(eq=False)
class Found:
    """The folders of runs below some places.

    Attributes:
        folders: folders with a ``run.yaml``, each once.
        unread: reasons by folder, for those that cannot be read.
    """

    folders: list[Path] = field(default_factory=list)
    unread: dict[Path, str] = field(default_factory=dict)


def find_runs(places: Sequence[Path]) -> Found:
    """Return the folders of the runs that the places are, or hold at any depth.

    Hidden folders and links to folders are not searched.

    Raises:
        InputError: a place is no folder, or holds no run.
    """
    found, known = Found(), set[Path]()
    for place in places:
        require(
            place.is_dir(),
            f"no such folder: {str(place)!r}; expected the --out of a run, or a folder with runs",
        )
        unread = len(found.unread)
        inside = _below(place, found)
        require(
            bool(inside) or len(found.unread) > unread,
            f"no run in {str(place)!r}; expected the --out of a run, or a folder with runs",
        )
        found.folders += [one for one in inside if one not in known]
        known.update(inside)
    return found


def _below(place: Path, found: Found) -> list[Path]:
    """Return the runs at a place or below it; note folders that cannot be read."""

    def note(error: OSError) -> None:
        found.unread[Path(error.filename)] = f"cannot be read ({error.strerror})"

    folders = []
    for folder, names, files in os.walk(place.resolve(), onerror=note):
        if RUN_FILE in files:
            folders.append(Path(folder))
            names.clear()
        names[:] = sorted(name for name in names if not name.startswith("."))
    return folders


def labels(folders: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each folder: its path below the folder that holds them all.

    >>> list(labels([Path("/runs/a"), Path("/runs/old/b")]).values())
    ['a', 'old/b']
    """
    base = os.path.commonpath([one.parent for one in folders])
    return {one: one.relative_to(base).as_posix() for one in folders}
