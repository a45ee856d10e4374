"""Checks that refuse bad input in one line: the input, what was expected, what to do."""

import difflib
from collections.abc import Collection, Iterable
from math import isfinite

LARGEST = 2**62
"""Upper limit of counts (exclusive): they must fit into an array's index."""


class InputError(ValueError):
    """Raised for input that cannot be used; the message is one line, written for users."""


def nearest(name: str, known: Iterable[str], *, most: int = 12) -> str:
    """Return a hint that names the known word nearest to ``name``, or lists ``most`` known words.

    >>> nearest("incme", ["age", "income"])
    "; did you mean 'income'?"
    >>> nearest("zzz", ["age", "income"])
    "; known: 'age', 'income'"
    """
    options = [str(option) for option in known]
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    shown = ", ".join(repr(option) for option in options[:most])
    return f"; known: {shown}{', ...' if len(options) > most else ''}"


def require(condition: bool, message: str) -> None:
    """Raise ``InputError(message)`` unless ``condition`` holds."""
    if not condition:
        raise InputError(message)


def require_known(name: object, known: Collection[str], message: str) -> None:
    """Raise ``InputError`` with the message and the nearest known word, unless a name is known.

    >>> require_known("incme", ["age", "income"], "no column 'incme'")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: no column 'incme'; did you mean 'income'?
    """
    if name not in known:
        raise InputError(message + nearest(str(name), known))


def require_positive(value: float, name: str) -> None:
    """Refuse zero, negative and infinite numbers.

    >>> require_positive(-1, "batch size")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: batch size is -1; expected a number above 0
    """
    require(value > 0 and isfinite(value), f"{name} is {value:g}; expected a number above 0")


def require_count(value: int, name: str) -> None:
    """Refuse everything but whole numbers above 0.

    >>> require_count(2.5, "number of rounds")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: number of rounds is 2.5; expected a whole number above 0
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and value > 0, f"{name} is {value!r}; expected a whole number above 0")
    require(value < LARGEST, f"{name} is {value!r}; expected a number below {LARGEST}")


def require_choice(value: str, name: str, choices: Iterable[str]) -> None:
    """Refuse a word that is not one of ``choices``."""
    require_known(value, list(choices), f"{name} is {value!r}")
