"""The record of a run on disk, one line of JSON per entry; a kill does not corrupt it."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError, require
from leakgauge.core.files import read_yaml, replacing, write_yaml
from leakgauge.tokens.monitor.settings import STEP

ABOUT_FILE, RECORDS_FILE = "monitor.yaml", "records.jsonl"
KIND = "leakgauge monitor"


class RecordFile:
    """Appends entries to ``records.jsonl`` in a folder, and reads those of an earlier run.

    Args:
        folder: folder that is new, empty, or of an earlier run of a monitor.
        about: settings for readers, as plain values.

    Raises:
        InputError: the folder contains other files.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._path = folder / RECORDS_FILE
        require(not folder.exists() or folder.is_dir(), f"out is {str(folder)!r}, which is a file")
        if (folder / ABOUT_FILE).is_file():
            known = read_yaml(folder / ABOUT_FILE)
            require(known.get("kind") == KIND, _refusal(folder))
        elif folder.is_dir() and any(folder.iterdir()):
            raise InputError(_refusal(folder))
        else:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_yaml(folder / ABOUT_FILE, {"kind": KIND, **about})

    def resume(self, start: int | None) -> int:
        """Drop an incomplete last line and entries from ``start`` on; return the next step.

        Args:
            start: next step of the loop; None continues after the last entry.
        """
        last, is_whole = -1, True
        for _, step in self._lines():
            if step is None or (start is not None and step >= start):
                is_whole = False
            else:
                last = max(last, step)
        if not is_whole:
            with replacing(self._path) as part, part.open("wb") as new:
                for line, step in self._lines():
                    if step is not None and (start is None or step < start):
                        new.write(line)
        return last + 1 if start is None else start

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield the entries, one at a time."""
        for line, step in self._lines():
            if step is not None:
                yield json.loads(line)

    def add(self, entry: Mapping[str, Any]) -> None:
        """Append an entry, and flush it to the system."""
        line = json.dumps(entry, allow_nan=False) + "\n"
        with self._path.open("ab") as file:
            file.write(line.encode())

    def _lines(self) -> Iterator[tuple[bytes, int | None]]:
        """Yield each line with its step."""
        if self._path.is_file():
            with self._path.open("rb") as file:
                for line in file:
                    yield line, _step(line)


def _step(line: bytes) -> int | None:
    """Return the step of an entry; None for an incomplete line."""
    if not line.endswith(b"\n"):
        return None
    try:
        return int(json.loads(line)[STEP])
    except (ValueError, TypeError, KeyError):
        return None


def _refusal(folder: Path) -> str:
    return (
        f"out is {str(folder)!r}, which contains other files; expected a new folder, an empty "
        "one, or the record of a monitor"
    )
