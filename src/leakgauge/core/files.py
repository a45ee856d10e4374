"""Reading and writing of files; a killed run never leaves half a file."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from leakgauge.core.checks import InputError, require


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, and move it to ``path`` at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    yield part
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    """Write a whole file; a kill leaves the old one in place."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_yaml(path: Path, values: Any, *, sort_keys: bool = False) -> None:
    """Write plain values as YAML."""
    plain = json.loads(json.dumps(values))
    write_text(path, yaml.safe_dump(plain, sort_keys=sort_keys, allow_unicode=True))


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); expected what a run wrote") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Raises:
        InputError: the file cannot be read, or does not hold a mapping.
    """
    try:
        values = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} is not YAML: {reason}; expected what a run wrote") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); expected what a run wrote") from error
    require(isinstance(values, dict), f"{str(path)!r} is damaged; expected what a run wrote")
    whole: dict[str, Any] = values
    return whole
