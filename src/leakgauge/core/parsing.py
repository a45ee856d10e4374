"""``NAME[:key=value,...]``, as users write defenses and attacks."""

from collections.abc import Mapping
from typing import Any

from leakgauge.core.checks import InputError, nearest, require

Kinds = Mapping[str, type]
"""Settings by name, and what each is: float, int, bool or str."""


def read(text: str, known: Mapping[str, Kinds], what: str) -> tuple[str, dict[str, Any]]:
    """The name and the settings that ``text`` spells.

    Args:
        text: as ``prune:rate=0.99`` or ``sign``.
        known: by name, the settings that it takes.
        what: ``"defense"``, for messages.

    Raises:
        InputError: the name, a key or a value is not known, or a key is there twice.

    >>> read("prune:rate=0.9", {"prune": {"rate": float}}, "defense")
    ('prune', {'rate': 0.9})
    >>> read("prune:rat=0.9", {"prune": {"rate": float}}, "defense")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: defense 'prune' has no setting 'rat'; did you mean 'rate'?
    """
    name, colon, rest = (part.strip() for part in text.partition(":"))
    require(name in known, f"{what} {name!r} is not known{nearest(name, known)}")
    kinds = known[name]
    settings: dict[str, Any] = {}
    for part in rest.split(",") if colon else ():
        key, _, value = (side.strip() for side in part.partition("="))
        require(bool(kinds), f"{what} {name!r} takes no settings; write it without {part!r}")
        require(key in kinds, f"{what} {name!r} has no setting {key!r}{nearest(key, kinds)}")
        require(key not in settings, f"{what} {text!r} sets {key!r} twice")
        settings[key] = _value(value, kinds[key], f"{name}: {key}")
    return name, settings


def _value(value: str, kind: type, what: str) -> Any:
    if kind is bool:
        require(value in ("0", "1"), f"{what} is {value!r}; expected 0 or 1")
        return value == "1"
    try:
        return kind(value)
    except ValueError as error:
        word = "a whole number" if kind is int else "a number"
        raise InputError(f"{what} is {value!r}; expected {word}") from error
