"""The facts about a run's data that a report shows."""

from collections.abc import Mapping
from typing import Any

PARTS = ("records", "columns", "private", "public", "test", "users")
"""Keys of a run's data that are sizes, in the order of the report."""

_SHOWN_ELSEWHERE = {*PARTS, "secret_values", "fingerprint", "games"}


def parts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of the data and its parts."""
    return {key: data[key] for key in PARTS if data.get(key) is not None}


def other_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the data that no other part of the report shows."""
    facts: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and key not in _SHOWN_ELSEWHERE:
            facts |= {f"{key}, {name}": item for name, item in value.items()}
        elif key not in _SHOWN_ELSEWHERE:
            facts[key] = value
    return facts
