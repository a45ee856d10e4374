"""Read numbers from text that comes from outside."""

import math
import re

from leakgauge.core.checks import InputError

DIGITS = 40
"""Largest number of characters in a number; Python itself fails at 4,300 digits."""

MOST = 10_000_000
"""Largest whole number of a setting without a bound of its field; more would run for weeks."""

BLANKS = " \t\n\r\f\v"
"""What may stand around a number; Python's own numbers allow no other control characters."""

_FORMS = {
    int: re.compile(r"[+-]?[0-9]+"),
    float: re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"),
}


def is_number(text: str, kind: type = int) -> bool:
    """Return whether ``read_number`` reads a text.

    >>> is_number("12"), is_number("1.5"), is_number("1.5", float), is_number("1_0")
    (True, False, True, False)
    """
    return (
        len(text) <= DIGITS
        and _FORMS[kind].fullmatch(text) is not None
        and math.isfinite(float(text))
    )


def read_number(text: str, kind: type, where: str, wanted: str = "") -> int | float:
    """Return the finite number that a text states in the digits 0 to 9.

    Python's own ``int`` and ``float`` also read ``1_000``, ``nan`` and digits of other scripts.

    Args:
        text: such as ``"-3"`` or ``"1e-4"``, also between blanks.
        kind: int or float.
        where: names the text in the refusal.
        wanted: the numbers that are allowed, in words.

    Raises:
        InputError: the text is not such a number, or has more than 40 characters.

    >>> read_number(" 1e-4 ", float, "--lr")
    0.0001
    >>> read_number("٣", int, "--rounds")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: --rounds is '٣'; expected a whole number
    """
    plain = text.strip(BLANKS)
    if is_number(plain, kind):
        return int(plain) if kind is int else float(plain)
    shown = (
        repr(text) if len(text) <= DIGITS else f"{text[:DIGITS]!r}... ({len(text):,} characters)"
    )
    number = "a whole number" if kind is int else "a number"
    raise InputError(f"{where} is {shown}; expected {wanted or number}")


def rounded_up(value: float) -> float:
    """Return a positive number with three digits, not below it.

    >>> rounded_up(1.2301), rounded_up(1.23), rounded_up(0.04567)
    (1.24, 1.23, 0.0457)
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.3g}")
