"""Plain values of reports: figures for JSON, and facts about the data of a run."""

from collections.abc import Mapping
from typing import Any

from leakgauge.results.measurements import Estimate, Measurement

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


def plain_interval(one: Estimate) -> dict[str, float]:
    """Return the value and the ends of the interval of an estimate, by name.

    >>> plain_interval(Estimate(0.7, 0.6, 0.8, 100))
    {'value': 0.7, 'low': 0.6, 'high': 0.8}
    """
    return {"value": one.value, "low": one.low, "high": one.high}


def plain_figure(one: Measurement) -> dict[str, float]:
    """Return a figure as plain values: the value, the ends of its interval, and chance."""
    return {**plain_interval(one.estimate), "chance": one.chance}
