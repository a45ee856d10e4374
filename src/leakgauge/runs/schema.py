"""What a grid file may hold: as JSON Schema for editors, and as a page for readers."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic

from leakgauge.core.checks import LARGEST
from leakgauge.runs.grid import SMALL
from leakgauge.runs.grid_file import GridFile
from leakgauge.runs.paper import PaperRow
from leakgauge.runs.question import Question
from leakgauge.runs.setting import PANELS, Declared, wanted
from leakgauge.runs.spec import declared

DIALECT = "https://json-schema.org/draft/2020-12/schema"

TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}

PAGE = """# Grid files

Made by `leakgauge schema --markdown`. `leakgauge run FILE` plays the cells of such a file.

| key | holds |
|---|---|
| `name` | letters, digits, `.`, `_` and `-`: for folders and titles |
| `about` | a few sentences for the page |
| `grids` | a list of mappings of settings; a setting with a list of values gives a cell for each |
| `sizes` | settings that replace those of the grids, by the word of `--size`; default `{small}` |
| `paper` | what a paper states: `where`, `value`; also `metric`, `knowledge`, `round`, `note` |

All grids of a file ask the same question. A grid without `ask` asks `{first}`.

An editor that knows JSON Schema completes and checks these keys. Write the schema to a file with
`leakgauge schema > grid.schema.json`, and begin the grid file with this line:

```yaml
# yaml-language-server: $schema=grid.schema.json
```
"""


def schema(questions: Mapping[str, Question]) -> dict[str, Any]:
    """Return the JSON Schema of a grid file.

    Args:
        questions: by name; the first is asked where a grid names none.
    """
    whole = GridFile.model_json_schema()
    row = pydantic.TypeAdapter(PaperRow).json_schema()
    first = next(iter(questions))
    return {
        "$schema": DIALECT,
        "title": "leakgauge grid",
        "type": "object",
        "required": whole["required"],
        "additionalProperties": False,
        "properties": {
            **whole["properties"],
            "grids": {
                "type": "array",
                "minItems": 1,
                "items": {"anyOf": [_grid(one, first) for one in questions]},
            },
            "sizes": {
                "type": "object",
                "additionalProperties": {
                    "anyOf": [{"$ref": f"#/$defs/{name}"} for name in questions]
                },
            },
            "paper": {"type": "array", "items": {**row, "additionalProperties": False}},
        },
        "$defs": {name: _settings(one) for name, one in questions.items()},
    }


def page(questions: Mapping[str, Question]) -> str:
    """Return the keys of a grid file as a page of Markdown.

    Args:
        questions: by name.
    """
    first = next(iter(next(iter(questions.values())).asks))
    parts = [PAGE.format(small=SMALL, first=first)]
    for question in questions.values():
        parts.append(f"## {question.title}\n\n`ask`: {_words(question)}.\n")
        parts += _tables(question)
    return "\n".join(parts)


def _grid(name: str, first: str) -> dict[str, Any]:
    needed = ["data"] if name == first else ["data", "ask"]
    return {"$ref": f"#/$defs/{name}", "required": needed}


def _settings(question: Question) -> dict[str, Any]:
    properties = {name: _value(one) for name, one in declared(question.Spec).items()}
    ask = {"enum": list(question.asks)}
    properties["ask"] = _described(declared(question.Spec)["ask"], _or_several(ask, 2))
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _value(one: Declared) -> dict[str, Any]:
    """The schema of what may stand behind a key: a value, or a list with a cell for each."""
    if one.kind is Mapping:
        value: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "integer"}}
        return _described(one, _or_several(value, 1))
    return _described(one, _or_several(_item(one), 2 if one.kind is tuple else 1))


def _described(one: Declared, value: dict[str, Any]) -> dict[str, Any]:
    default = list(one.default) if one.kind is tuple else one.default
    return {"description": one.setting.help, "default": default, **value}


def _or_several(item: dict[str, Any], depth: int) -> dict[str, Any]:
    """A value, or lists of it, up to ``depth`` lists within one another."""
    options, inner = [item], item
    for _ in range(depth):
        inner = {"type": "array", "items": {"anyOf": list(options)}, "minItems": 1}
        options.append(inner)
    return {"anyOf": options}


def _item(one: Declared) -> dict[str, Any]:
    setting = one.setting
    if setting.choices is not None:
        item: dict[str, Any] = {"enum": list(setting.choices)}
    else:
        item = {"type": TYPES[one.item]}
    if one.item in (int, float) and setting.choices is None:
        limits = {
            "minimum": setting.least,
            "exclusiveMinimum": setting.above,
            "maximum": setting.most,
            "exclusiveMaximum": None if setting.most is not None else LARGEST,
        }
        item |= {name: limit for name, limit in limits.items() if limit is not None}
    return {"anyOf": [item, {"type": "null"}]} if one.default is None else item


def _tables(question: Question) -> Iterator[str]:
    known = [one for name, one in declared(question.Spec).items() if name != "ask"]
    for panel in PANELS:
        rows = [_row(one) for one in known if one.setting.panel == panel]
        if rows:
            head = f"### {panel}\n\n| key | value | default | meaning |\n|---|---|---|---|"
            yield "\n".join([head, *rows]) + "\n"


def _row(one: Declared) -> str:
    text = one.setting.help.replace("|", "\\|")
    return f"| `{one.name}` | {_kind(one)} | {_default(one)} | {text} |"


def _kind(one: Declared) -> str:
    if one.setting.choices is not None:
        return ", ".join(f"`{choice}`" for choice in one.setting.choices)
    if one.kind is Mapping:
        return "a mapping of columns to whole numbers"
    several = "; a list is one value" if one.kind is tuple and not one.setting.cells else ""
    if one.item in (int, float):
        return wanted(one) + several
    return {bool: "true or false", str: "text"}[one.item] + several


def _default(one: Declared) -> str:
    value = list(one.default) if one.kind in (tuple, Mapping) else one.default
    if value is None or value in ([], ""):
        return ""
    shown = value[0] if isinstance(value, list) and len(value) == 1 else value
    return f"`{json.dumps(shown) if isinstance(shown, bool) else shown}`"


def _words(question: Question) -> str:
    return "; ".join(f"`{word}` ({text})" for word, text in question.asks.items())
