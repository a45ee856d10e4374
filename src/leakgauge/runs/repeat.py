"""The command that repeats a run."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from leakgauge.core.checks import InputError
from leakgauge.results.measurements import Run
from leakgauge.runs.question import Question
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import Spec, changed, declared, make_spec

S = TypeVar("S", bound=Spec)

_PROGRAM = "leakgauge"
_OWN = ("data", "ask")  # they have a place of their own in the command


def repeat_audit(
    command: str,
    asked: Mapping[str, tuple[Question, Spec]],
    options: type[Spec],
    *,
    without: Collection[str] = (),
) -> str:
    """Return the command line of an audit of several questions, quoted for a shell.

    Args:
        command: its name.
        asked: the questions with their settings, as they were given.
        options: the ``Spec`` whose fields the command has as options.
        without: fields of it that are not options of the command.
    """
    several = _several(asked)
    specs = {name: spec for name, (_, spec) in asked.items()}
    specs = {name: _alone(spec, several[name]) for name, spec in specs.items() if name in several}
    words = _start(command, next(iter(specs.values())))
    for spec in specs.values():
        words += [word for ask in spec.ask for word in ("--ask", ask)]
    shared: set[tuple[str, str]] = set()
    for name, one in declared(options).items():
        owners = {
            key: spec.aliases.get(name, name)
            for key, spec in specs.items()
            if spec.aliases.get(name, name) in declared(type(spec))
        }
        values = [changed(specs[key]).get(owner) for key, owner in owners.items()]
        if (
            name in (*_OWN, *without)
            or not values
            or values[0] is None
            or any(v != values[0] for v in values)
        ):
            continue
        each = next((several[key][name] for key in owners if name in several[key]), None)
        words += _option(one, values[0]) if each is None else _option(one, each)
        shared |= set(owners.items())
    for key, spec in specs.items():
        for name, value in changed(spec).items():
            if name not in (*_OWN, "task") and (key, name) not in shared:
                words += ["--set", f"{key}.{name}={_text(declared(type(spec))[name], value)}"]
    return shlex.join(words)


def _several(
    asked: Mapping[str, tuple[Question, Spec]],
) -> dict[str, dict[str, list[Any]]]:
    """Return, for the first key of each question, the values that its other keys ask about."""
    several: dict[str, dict[str, list[Any]]] = {}
    first: dict[int, str] = {}
    for key, (question, spec) in asked.items():
        if id(question) not in first:
            first[id(question)] = key
            several[key] = {}
            continue
        owner = several[first[id(question)]]
        for name, one in declared(type(spec)).items():
            if one.setting.each:
                start = [getattr(asked[first[id(question)]][1], name)]
                owner.setdefault(name, start).append(getattr(spec, name))
    return several


def _alone(spec: Spec, several: Mapping[str, Sequence[Any]]) -> Spec:
    """Return the settings without the columns that are left out as they are asked about, too."""
    others = {one for values in several.values() for one in values}
    return replace(spec, drop=tuple(one for one in spec.drop if one not in others))


_ADVISED = re.compile(r"""use --(drop|group) ((?:'[^']*'|"'"|[^\s'",;])+)""")


def with_fixes(run: Run) -> dict[str, Any]:
    """Return the settings of a run with the columns that its warnings say to drop or to group by.

    >>> run = Run("", {"drop": ["a"]}, {}, warnings=["x; use --drop 'Unnamed: 0' to see"])
    >>> with_fixes(run)
    {'drop': ['a', 'Unnamed: 0']}
    """
    settings = dict(run.settings)
    for text in run.warnings:
        for name, word in _ADVISED.findall(text):
            (column,) = shlex.split(word)
            if name == "drop":
                settings["drop"] = list(dict.fromkeys([*settings.get("drop", ()), column]))
            else:
                settings["group"] = settings.get("group") or column
    return settings


def spec_of_run(settings: Mapping[str, Any], kind: type[S]) -> S | None:
    """Return the settings of a run, to vary them in a further command.

    Args:
        settings: settings of the run as plain values; unknown names are left out.
        kind: class of the settings of its question.

    Returns:
        None if the settings name neither data nor a task, or another version wrote them.
    """
    if not (settings.get("data") or settings.get("task")):
        return None
    known = declared(kind)
    given = {name: value for name, value in settings.items() if name in known}
    if settings.get("task"):
        given.pop("label", None)  # the task has its own
    try:
        spec = make_spec(kind, given)
    except InputError:
        return None
    assert isinstance(spec, kind)
    return spec


def repeat_command(command: str, spec: Spec, *, files: Sequence[str] = ()) -> str:
    """Return the command line of a command whose options are the fields of ``spec``.

    Args:
        command: its name.
        spec: its settings.
        files: its arguments after DATA.
    """
    words = [*_start(command, spec), *files]
    known = declared(type(spec))
    for name, value in changed(spec).items():
        if name not in _OWN and known[name].setting.option:
            words += _option(known[name], value)
    return shlex.join(words)


def _start(command: str, spec: Spec) -> list[str]:
    return [_PROGRAM, command, *([spec.data] if spec.data else [])]


def _option(one: Declared, value: Any) -> list[str]:
    if value is True:
        return [one.flag]
    return [word for item in _items(one, value) for word in (one.flag, item)]


def _items(one: Declared, value: Any) -> Sequence[str]:
    if isinstance(value, Mapping):
        return [f"{name}={item}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        own = one.default if one.setting.adds else ()
        return [str(item) for item in value if item not in own]
    return [str(value)]


def _text(one: Declared, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(_items(one, value))
