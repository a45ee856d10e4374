"""The memory that a command may use, and refusals of work that needs more."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakgauge.core.checks import LARGEST, InputError, require
from leakgauge.core.numbers import is_number

VARIABLE = "LEAKGAUGE_MAX_MEMORY"
"""The environment variable that holds the bound; worker processes read it as well."""

OPTION = "--max-memory"

CONTAINER = Path("/sys/fs/cgroup")
"""Folder in which Linux publishes the limits of a container."""

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

BASE = 6 * 10**8
"""Bytes of a process before it computes: torch, scikit-learn and the data of a table."""


def read_size(text: str) -> int:
    """Return the bytes of a size in words.

    Raises:
        InputError: the text is not a size.

    >>> read_size("4GB"), read_size("500 MB"), read_size("1.5G")
    (4000000000, 500000000, 1500000000)
    """
    found = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    sound = found is not None and is_number(found[1], float)
    size = round(float(found[1]) * UNITS[found[2].upper()]) if found and sound else 0
    require(
        0 < size < LARGEST, f"{OPTION} is {text[:40]!r}; expected a size, for example 4GB or 500MB"
    )
    return size


def in_words(size: float) -> str:
    """Return a size in words.

    >>> in_words(2.96e9), in_words(8.7e8), in_words(4e5)
    ('3 GB', '870 MB', '0.4 MB')
    """
    unit = "GB" if size >= 10**9 else "MB"
    return f"{float(f'{size / UNITS[unit[0]]:.2g}'):g} {unit}"


@contextmanager
def bounded(text: str | None) -> Iterator[None]:
    """Bound the memory of this process and of those that it starts inside the block.

    Args:
        text: a size; None takes the environment's bound, or half of the free memory.

    Raises:
        InputError: the text is not a size.
    """
    before = os.environ.get(VARIABLE)
    size = allowed() if text is None else read_size(text)
    os.environ[VARIABLE] = str(size)
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def allowed() -> int:
    """Return the bytes that this process may use: the bound, else half of the free memory.

    Raises:
        InputError: the environment variable does not hold a size.
    """
    given = os.environ.get(VARIABLE)
    return read_size(given) if given else free() // 2


def free() -> int:
    """Return the bytes that are free in the machine or its container."""
    try:
        words = Path("/proc/meminfo").read_text(encoding="utf-8").split()
        machine = 1024 * int(words[words.index("MemAvailable:") + 1])
    except (OSError, ValueError):  # without Linux, the installed memory
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, _free_in_container())


def _free_in_container() -> int:
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            limit = int((CONTAINER / most).read_text())
            return max(0, limit - int((CONTAINER / used).read_text()))
        except (OSError, ValueError):  # not a container, or without a limit
            continue
    return 2**62


def require_memory(need: int, what: str, instead: str) -> None:
    """Refuse work that exceeds the bound.

    Args:
        need: bytes in addition to ``BASE``.
        what: what needs them; the start of a sentence.
        instead: advice for the user.

    Raises:
        InputError: the bound is too small.
    """
    bound = allowed()
    if BASE + need > bound:
        raise InputError(
            f"{what} needs {in_words(BASE + need)} of memory, and {in_words(bound)} may be used; "
            f"{instead}, or raise {OPTION}"
        )


def fitting(workers: int, need: int) -> int:
    """Return how many worker processes fit into the bound together, at least 1.

    Args:
        workers: requested number.
        need: bytes of each process, in addition to ``BASE``.
    """
    return max(1, min(workers, allowed() // (BASE + need)))
