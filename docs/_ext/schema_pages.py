"""Make the pages of the files that a run writes from their schemas."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any

import pydantic

from leakgauge.catalog import questions
from leakgauge.evidence.card_model import card_schema
from leakgauge.results import measurements as results
from leakgauge.results.metrics import Metric
from markdown_text import plain, table


def card() -> str:
    """Return a table for the audit card and one for each of its parts."""
    return _tables("The card", card_schema())


def measurements() -> str:
    """Return a table for a line of ``measurements.jsonl`` and one for each of its parts."""
    schema = pydantic.TypeAdapter(results.Measurement).json_schema()
    _explain(schema, results.Measurement)
    for name, part in schema["$defs"].items():
        _explain(part, getattr(results, name))
    return _tables("A line", schema)


def metrics() -> str:
    """Return a table of the metrics of each question."""
    head = ("metric", "title", "from", "to", "without leakage", "worse is")
    parts = []
    for question in questions().values():
        rows = [_metric(name, one) for name, one in question.metrics.items()]
        parts.append(
            f"### {question.title}\n\n`question`: `{question.name}`\n\n{table(head, rows)}"
        )
    return "\n".join(parts)


def _metric(name: str, one: Metric) -> tuple[str, ...]:
    chance = "depends on the data" if one.chance is None else f"{one.chance:g}"
    worse = "of the model" if one.of_model else "higher" if one.higher_is_worse else "lower"
    return f"`{name}`", plain(one.label), _bound(one.low), _bound(one.high), chance, worse


def _bound(value: float) -> str:
    return "" if math.isinf(value) else f"{value:g}"


def _explain(schema: dict[str, Any], of: type) -> None:
    """Take the meaning of each field from the docstring of its class."""
    assert is_dataclass(of)
    for name, text in attributes(of.__doc__ or "").items():
        schema["properties"][name]["description"] = text


def attributes(docstring: str) -> dict[str, str]:
    """Return the text of each entry below ``Attributes:``.

    >>> attributes("A.\\n\\n    Attributes:\\n        a: one,\\n            long.")
    {'a': 'one, long.'}
    """
    _, _, part = docstring.partition("Attributes:\n")
    part = part.partition("\n\n")[0]
    entries = re.findall(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", part, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _tables(title: str, schema: Mapping[str, Any]) -> str:
    parts = {title: schema, **schema.get("$defs", {})}
    return "\n".join(_part(name, one) for name, one in parts.items() if "properties" in one)


def _part(name: str, schema: Mapping[str, Any]) -> str:
    about = schema.get("description", "").partition("\n")[0]
    needed = schema.get("required", ())
    rows = [
        (f"`{key}`", _kind(one), "yes" if key in needed else "", _meaning(one))
        for key, one in schema["properties"].items()
    ]
    head = ("key", "value", "needed", "meaning")
    return f"## {name}\n\n{plain(about)}\n\n{table(head, rows)}"


def _meaning(schema: Mapping[str, Any]) -> str:
    return plain(schema.get("description", "").replace("``", ""))


def _kind(schema: Mapping[str, Any]) -> str:
    """Return the values that a schema allows, in words."""
    if "$ref" in schema:
        part = schema["$ref"].rpartition("/")[2]
        return f"[{part}](#{part.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "allOf" in schema:
        return " and ".join(_kind(one) for one in schema["allOf"])
    return _composed(schema)


def _composed(schema: Mapping[str, Any]) -> str:
    match schema.get("type"):
        case "array":
            inner: Iterable[str] = map(_kind, schema.get("prefixItems", [schema.get("items", {})]))
            return f"list of {', '.join(dict.fromkeys(inner))}".strip()
        case "object":
            value = schema.get("additionalProperties")
            return f"object of {_kind(value)}" if isinstance(value, Mapping) else "object"
        case "string":
            return "text"
        case "integer":
            return "whole number"
        case "boolean":
            return "true or false"
        case None:
            return "any"
        case other:
            return str(other)
