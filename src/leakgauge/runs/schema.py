"""The JSON Schema of a grid file, made from the settings of the questions."""

from collections.abc import Mapping
from typing import Any

import pydantic

from leakgauge.core.numbers import MOST
from leakgauge.core.parsing import NEEDED, Key, Notation
from leakgauge.runs.grid_file import GridFile
from leakgauge.runs.paper import PaperRow
from leakgauge.runs.question import Question
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import declared, plain_value

JsonSchema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"

CELLS = "A list gives a cell for each value."
ONE_LIST = "A list is one value; a list of lists gives a cell for each."

_REAL = r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?"
_VALUES = {float: rf"[+-]?(?:{_REAL}|inf)", int: r"[+-]?\d[\d_]*", bool: "[01]", str: "[^,]*"}
"""What stands behind ``key=``, as a regular expression, by the kind of the key."""


def grid_schema(questions: Mapping[str, Question]) -> JsonSchema:
    """Return the JSON Schema (draft 2020-12) of a grid file.

    A file's grids ask one question, whose settings are the keys of its grids and sizes.

    Args:
        questions: by name; the first is asked where a grid names none.

    Raises:
        InputError: an adversary or a defense of another package cannot be imported.
    """
    file = GridFile.model_json_schema()
    first = next(iter(questions))
    words = [word for one in questions.values() for word in one.asks]
    asked = _either({"enum": words}, _several({"enum": words}))
    keys = file["properties"]
    keys["grids"]["items"] = {"type": "object", "properties": {"ask": asked}}
    keys["sizes"] |= {"additionalProperties": {"type": "object"}, "propertyNames": _TEXT}
    keys["paper"]["items"] = paper_schema()
    return {
        "$schema": DRAFT,
        "title": "A grid of experiments: leakgauge run FILE",
        "type": "object",
        "properties": {name: _untitled(one) for name, one in keys.items()},
        "required": file["required"],
        "additionalProperties": False,
        "allOf": [
            _DATA_SOMEWHERE,
            *(_of_question(one, default=name == first) for name, one in questions.items()),
        ],
        "$defs": {
            key: schema for one in questions.values() for key, schema in _definitions(one).items()
        },
    }


def paper_schema() -> JsonSchema:
    """Return the schema of a row of ``paper``, before a question is known."""
    row = pydantic.TypeAdapter(PaperRow).json_schema()
    keys = {name: _untitled(_numbers(one)) for name, one in row["properties"].items()}
    return {
        "type": "object",
        "properties": keys,
        "required": row["required"],
        "additionalProperties": False,
    }


def notation_pattern(notation: Notation) -> str:
    """Return the regular expression of what users may write.

    >>> import re
    >>> keys = {"rate": Key(float, 0.5)}
    >>> pattern = notation_pattern(Notation(lambda: ("prune", "sign"), {"prune": keys}.get))
    >>> [bool(re.search(pattern, one)) for one in ("sign", "prune:rate=1", "prune:rat=1")]
    [True, True, False]
    """
    names = notation.names()
    known = "|".join(name + _keys_pattern(notation.keys(name) or {}) for name in names)
    other = rf"(?!(?:{'|'.join(names)})\s*:)[^:]+:\s*[^\W\d]\w*\s*(?::.*)?"
    return rf"^\s*(?:{known}{f'|{other}' if notation.own else ''})\s*$"


_TEXT = {"type": "string"}

_DATA_SOMEWHERE = {
    "if": {
        "required": ["sizes"],
        "properties": {
            "sizes": {"minProperties": 1, "additionalProperties": {"required": ["data"]}}
        },
    },
    "else": {"properties": {"grids": {"items": {"required": ["data"]}}}},
}
"""Every grid names its data, unless every size does."""


def _of_question(question: Question, *, default: bool) -> JsonSchema:
    """If a grid asks this question, then the file has its settings."""
    words = {"enum": list(question.asks)}
    asks = _either(words, {"type": "array", "contains": words})
    one: JsonSchema = {"type": "object", "properties": {"ask": asks}}
    settings = {"$ref": f"#/$defs/{question.name}"}
    row = {
        "where": {
            "properties": {
                name: {"description": each.setting.help}
                for name, each in declared(question.Spec).items()
            },
            "additionalProperties": False,
        },
        "metric": {"enum": ["", *question.metrics]},
    }
    return {
        "if": {"properties": {"grids": {"contains": one if default else _with_ask(one)}}},
        "then": {
            "properties": {
                "grids": {"items": settings},
                "sizes": {"additionalProperties": settings},
                "paper": {"items": {"properties": row}},
            }
        },
    }


def _with_ask(schema: JsonSchema) -> JsonSchema:
    return {**schema, "required": ["ask"]}


def _definitions(question: Question) -> dict[str, JsonSchema]:
    """The settings of a question, and one value of each setting that takes several."""
    typed = pydantic.TypeAdapter(question.Spec).json_schema()["properties"]
    definitions: dict[str, JsonSchema] = {}
    keys = {}
    for name, one in declared(question.Spec).items():
        value = _value(one, typed[name], question)
        if one.kind is tuple:
            definitions[f"{question.name}.{name}"] = value
            value = {"$ref": f"#/$defs/{question.name}.{name}"}
        keys[name] = _key(one, value)
    own = {"type": "object", "properties": keys, "additionalProperties": False}
    return {question.name: {"description": question.title, **own}, **definitions}


def _key(one: Declared, value: JsonSchema) -> JsonSchema:
    """What a grid may say of a setting, ``value`` or lists of it."""
    if one.kind is not tuple:
        forms = [value, _several(value)]
    elif one.setting.cells:
        each = _either(value, _list(value), _NULL)
        forms = [value, _several(each), _NULL]
    else:
        each = _either(value, _list(value), _NULL)
        cells = {**_several(each), "contains": {"type": "array"}}
        forms = [value, _list(value), cells, _NULL]
    words = one.setting.offered
    return {
        "description": f"{one.setting.help}. {list_meaning(one)}",
        "default": plain_value(one, one.default),
        **({"examples": list(words)} if words and not one.setting.choices else {}),
        **_either(*forms),
    }


def list_meaning(one: Declared) -> str:
    """Return what a list of values means in a grid."""
    return ONE_LIST if one.kind is tuple and not one.setting.cells else CELLS


def _value(one: Declared, typed: JsonSchema, question: Question) -> JsonSchema:
    """One value of a setting, or one item of its list."""
    value = typed["items"] if one.kind is tuple else typed
    value = {key: each for key, each in value.items() if key not in ("title", "default")}
    setting = one.setting
    if one.name == "ask":
        return {"enum": list(question.asks)}
    if one.kind is Mapping:
        count = {**value["additionalProperties"], "minimum": 1, "maximum": MOST}
        return {**value, "propertyNames": _TEXT, "additionalProperties": count}
    if setting.choices:
        return _on_leaf(value, {"enum": list(setting.choices)})
    if setting.notation:
        return {"type": "string", "pattern": notation_pattern(setting.notation)}
    if one.item is str and one.default != "":
        return _on_leaf(value, {"minLength": 1})
    if one.item in (int, float):
        return _numbers(_on_leaf(value, _bounds(one)))
    return value


def _bounds(one: Declared) -> JsonSchema:
    limits = {
        "minimum": one.setting.least,
        "exclusiveMinimum": one.setting.above,
        "maximum": one.most,
    }
    return {name: limit for name, limit in limits.items() if limit is not None}


def _on_leaf(value: JsonSchema, more: JsonSchema) -> JsonSchema:
    """Add to a schema, or to that side of it which is not null."""
    if "anyOf" not in value:
        return {**value, **more}
    return _either(*({**one, **more} if one != _NULL else one for one in value["anyOf"]))


def _numbers(value: JsonSchema) -> JsonSchema:
    """Let text stand for a number that is not whole: YAML reads 1e-4, without a point, as text."""
    notes = {key: one for key, one in value.items() if key in ("description", "default")}
    bare = {key: one for key, one in value.items() if key not in notes}
    sides = [each for one in bare.get("anyOf", [bare]) for each in (one, *_as_text(one))]
    return {**notes, **(_either(*sides) if len(sides) > 1 else bare)}


def _as_text(value: JsonSchema) -> list[JsonSchema]:
    if value.get("type") != "number":
        return []
    positive = value.get("minimum", -1) >= 0 or value.get("exclusiveMinimum", -1) >= 0
    pattern = rf"^\s*{'[+]?' if positive else '[+-]?'}{_REAL}\s*$"
    return [{"type": "string", "pattern": pattern}]


def _keys_pattern(keys: Mapping[str, Key]) -> str:
    if not keys:
        return ""
    each = "|".join(rf"{key}\s*=\s*(?:{_VALUES[one.kind]})" for key, one in keys.items())
    settings = rf"\s*:\s*(?:{each})\s*(?:,\s*(?:{each})\s*)*"
    needed = any(one.default == NEEDED for one in keys.values())
    return settings if needed else f"(?:{settings})?"


_NULL = {"type": "null"}


def _either(*forms: JsonSchema) -> JsonSchema:
    return {"anyOf": list(forms)}


def _list(item: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": item}


def _several(item: JsonSchema) -> JsonSchema:
    return {**_list(item), "minItems": 1}


def _untitled(schema: JsonSchema) -> JsonSchema:
    return {key: one for key, one in schema.items() if key != "title"}
