"""Kill computations, flip bits, and write files as another program would."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leakgauge.core.files import checksum_of, read_sealed, read_yaml, write_sealed, write_yaml
from leakgauge.guarantee.search import Craft
from leakgauge.runs import checkpoint
from leakgauge.runs.checkpoint import Checkpoint
from leakgauge.runs.question import Silent


@dataclass(frozen=True)
class Short(Craft):
    """Settings of a search with two starts and few steps."""

    restarts: int = 1
    steps: int = 12


class Killed(BaseException):
    """Exception that stands for a kill of the program."""


class Notes(Silent):
    """Progress that keeps the notes to the user."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def kill_after(patch: pytest.MonkeyPatch, states: int) -> None:
    """Keep states without delay, and end the program after a number of them."""
    original, seen = Checkpoint.keep, iter(range(1, states + 1))

    def keep(self: Checkpoint, state: Any) -> None:
        original(self, state)
        if next(seen) == states:
            raise Killed

    patch.setattr(checkpoint, "SECONDS_BETWEEN", 0.0)
    patch.setattr(Checkpoint, "keep", keep)


def flip(path: Path, rng: np.random.Generator) -> None:
    """Flip one bit of a file at random."""
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)


def rewrite(path: Path, change: Callable[[str], str]) -> None:
    """Change a file of a store and its checksum."""
    if path.suffix == ".yaml":
        write_sealed(path, change(read_sealed(path).decode()).encode())
        return
    path.write_text(change(path.read_text()))
    cell = read_yaml(path.with_name("cell.yaml"))
    cell["files"][path.name] = checksum_of(path)
    write_yaml(path.with_name("cell.yaml"), cell)
