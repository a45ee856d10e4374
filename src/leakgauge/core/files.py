"""Read and write files; a killed run never leaves half a file.

A sealed file begins with the SHA-256 of the rest, so that damage is noticed when it is read.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from leakgauge.core.checks import InputError
from leakgauge.core.outside import parse_yaml

SEAL = b"# sha256 "
"""First bytes of a sealed file; YAML reads the line as a comment."""


class DamagedError(InputError):
    """Raised for a file that differs from what a run wrote."""


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


def write_sealed(path: Path, content: bytes) -> None:
    """Write a whole file behind the SHA-256 of its content; a kill leaves the old one in place."""
    with replacing(path) as part:
        part.write_bytes(_seal(content) + content)


def read_sealed(path: Path) -> bytes:
    """Return the content of a sealed file.

    Raises:
        InputError: the file cannot be read, or (``DamagedError``) does not match its checksum.
    """
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    head, _, content = whole.partition(b"\n")
    if head + b"\n" != _seal(content):
        raise DamagedError(
            f"{str(path)!r} is damaged or was changed: it does not match its checksum"
        )
    return content


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from error


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read ({error}); expected what a run wrote")


def _seal(content: bytes) -> bytes:
    return SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


def write_yaml(path: Path, values: Any, *, sort_keys: bool = False) -> None:
    """Write plain values as sealed YAML."""
    plain = json.loads(json.dumps(values))
    text = yaml.safe_dump(plain, sort_keys=sort_keys, allow_unicode=True)
    write_sealed(path, text.encode())


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping that a sealed YAML file holds.

    Raises:
        InputError: the file cannot be read, is damaged, or does not hold a mapping.
    """
    content = read_sealed(path)
    try:
        values = parse_yaml(content)
    except InputError as error:
        raise DamagedError(
            f"{str(path)!r} is damaged ({error}); expected what a run wrote"
        ) from error
    if not isinstance(values, dict):
        raise DamagedError(f"{str(path)!r} is damaged; expected what a run wrote")
    whole: dict[str, Any] = values
    return whole
