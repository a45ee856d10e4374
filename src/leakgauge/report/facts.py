"""What a report says of a run's data."""

from collections.abc import Mapping
from typing import Any

PARTS = ("records", "columns", "private", "public", "test", "users")
"""Keys of a run's data that are sizes, in the order in which they are shown."""

_PLACED = {*PARTS, "secret_values", "fingerprint", "games"}


def parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of the data and its parts."""
    return {key: data[key] for key in PARTS if data.get(key) is not None}


def other_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else is known of the data, without what has a place of its own."""
    facts: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and key not in _PLACED:
            facts |= {f"{key}, {name}": item for name, item in value.items()}
        elif key not in _PLACED:
            facts[key] = value
    return facts
