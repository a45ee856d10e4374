"""The page of all keys of a grid file, in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from leakgauge.core.parsing import NEEDED, Key, Notation
from leakgauge.runs.grid_file import GridFile
from leakgauge.runs.question import Question
from leakgauge.runs.schema import paper_schema
from leakgauge.runs.setting import PANELS, Declared, wanted
from leakgauge.runs.spec import declared, plain_value

INTRO = """\
# Keys of a grid file

`leakgauge schema --markdown` prints this page. `leakgauge run FILE.yaml` reads such a file:

```yaml
# yaml-language-server: $schema=grid.schema.json
name: my-grid
grids:
  - data: randhie
    defense: [none, "prune:rate=0.99"]
sizes:
  small: {rounds: 2, trials: 500}
  large: {seed: [0, 1, 2]}
```

The first line is for editors with a YAML language server, such as VS Code with its YAML extension:
they complete keys, show these texts and mark mistakes. Make its file by
`leakgauge schema > grid.schema.json`. JSON Schema takes 2.0 for a whole number; `leakgauge run`
does not. A whole number without another bound is at most 10,000,000.
"""

MANY = 5
"""Number of common keys from which a table of names has a row for each key."""

LISTS = """\
## Lists

| a list of | means |
|---|---|
| values | a cell for each; all lists of a grid are combined |
| values of a key marked *list* | one value, the same for all cells |
| lists of a key marked *list* | a cell for each inner list |
| lists of a key marked *cells* | a cell for each inner list, which has all its values |
"""


def keys_page(questions: Mapping[str, Question]) -> str:
    """Return the page.

    Raises:
        InputError: an adversary or a defense of another package cannot be imported.
    """
    shared = _shared(questions)
    parts = [
        INTRO,
        _file(),
        LISTS,
        "## Keys of every question\n\nEvery grid or every size names `data`. Where a text says "
        "`--batch-size`, the key is `batch_size`; DATA is `data`.\n\n" + _tables(shared.values()),
        *(_question(one, shared) for one in questions.values()),
        "## Names with settings\n\nWrite `NAME` or `NAME:key=value,key=value`. 1 stands for true, "
        "and 0 for false. A key without a default must be given.\n",
        *_notations(questions),
    ]
    return "\n".join(parts)


def _file() -> str:
    file = GridFile.model_json_schema()
    row = paper_schema()
    return (
        f"## The file\n\n{_plain_keys(file)}\n"
        f"## A row of `paper`\n\nIts settings must fit cells of the grids.\n\n{_plain_keys(row)}"
    )


def _plain_keys(schema: Mapping[str, Any]) -> str:
    rows = [
        (f"`{name}`", "yes" if name in schema["required"] else "", one["description"])
        for name, one in schema["properties"].items()
    ]
    return _table(("key", "needed", "meaning"), rows)


def _shared(questions: Mapping[str, Question]) -> dict[str, Declared]:
    first, *others = (declared(one.Spec) for one in questions.values())
    return {
        name: one for name, one in first.items() if all(other.get(name) == one for other in others)
    }


def _question(question: Question, shared: Mapping[str, Declared]) -> str:
    asks = _table(("`ask`", "meaning"), [(f"`{one}`", text) for one, text in question.asks.items()])
    own = [
        one for name, one in declared(question.Spec).items() if name not in shared and name != "ask"
    ]
    return f"## {question.title}\n\n{asks}\n{_tables(own)}"


def _tables(settings: Iterable[Declared]) -> str:
    """A table for each panel."""
    known = sorted(settings, key=lambda one: PANELS.index(one.setting.panel))
    return "\n".join(
        f"**{panel}**\n\n"
        + _table(("key", "value", "default", "meaning"), [_row(one) for one in several])
        for panel, several in groupby(known, key=lambda one: one.setting.panel)
    )


def _row(one: Declared) -> tuple[str, ...]:
    default = plain_value(one, one.default)
    shown = "" if default in (None, "", [], {}) else f"`{_yaml(default)}`"
    return f"`{one.name}`", _value(one), shown, one.setting.help


def _value(one: Declared) -> str:
    """The values of a setting in words."""
    setting = one.setting
    if setting.choices:
        words = ", ".join(f"`{word}`" for word in setting.choices)
    elif setting.notation:
        words = "[name with settings](#names-with-settings)"
    elif one.item in (int, float):
        words = wanted(one).removeprefix("a ")
    else:
        words = {str: "text", bool: "`true` or `false`", Mapping: "`{COL: N}`"}[one.item]
    marks = {True: " (*cells*)", False: " (*list*)"}
    return words + (marks[setting.cells] if one.kind is tuple else "")


def _notations(questions: Mapping[str, Question]) -> list[str]:
    """A table of names for each notation, once."""
    known: dict[str, Notation] = {}
    for question in questions.values():
        for name, one in declared(question.Spec).items():
            if one.setting.notation and one.setting.notation not in known.values():
                known[name] = one.setting.notation
    return [_notation(name, one) for name, one in known.items()]


def _notation(name: str, notation: Notation) -> str:
    keys = {one: notation.keys(one) for one in notation.names()}
    table = _by_key(keys) if len(_common(keys)) >= MANY else _by_name(keys)
    own = "\nYour own code: `MODULE:NAME`, with settings `MODULE:NAME:key=value,...`.\n"
    return f"### `{name}`\n\n{table}{own if notation.own else ''}"


def _common(keys: Mapping[str, Mapping[str, Key]]) -> set[str]:
    """Return the keys that more than half of the names have."""
    every = [key for one in keys.values() for key in one]
    return {key for key in every if 2 * every.count(key) > len(keys)}


def _by_name(keys: Mapping[str, Mapping[str, Key]]) -> str:
    rows = [
        (f"`{name}`", ", ".join(f"`{key}`{_default(one)}" for key, one in known.items()) or "none")
        for name, known in keys.items()
    ]
    return _table(("name", "settings, with their defaults"), rows)


def _by_key(keys: Mapping[str, Mapping[str, Key]]) -> str:
    """A row for each key, with the default of each name; for names with many keys in common."""
    rows = [
        (f"`{key}`", *(_shown(known[key]) if key in known else "" for known in keys.values()))
        for key in dict.fromkeys(key for known in keys.values() for key in known)
    ]
    return _table(("setting", *(f"`{name}`" for name in keys)), rows)


def _default(one: Key) -> str:
    return "" if one.default == NEEDED else f" ({_shown(one)})"


def _shown(one: Key) -> str:
    """A default as it is written."""
    value = int(one.default) if one.kind is bool else one.default
    return "none" if value is None else str(value)


def _yaml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells).replace("| --- ", "|---")
