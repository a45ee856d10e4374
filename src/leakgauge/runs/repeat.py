"""The command that repeats a run."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from leakgauge.runs.question import Question
from leakgauge.runs.spec import Declared, Spec, changed, declared

_PROGRAM = "leakgauge"
_OWN = ("data", "ask")  # they have a place of their own in the command


def repeat_audit(
    command: str, asked: Mapping[str, tuple[Question, Spec]], options: type[Spec]
) -> str:
    """Return the command line of an audit of several questions, quoted for a shell.

    Args:
        command: its name.
        asked: the questions with their settings, as they were given.
        options: the ``Spec`` whose fields the command has as options.
    """
    specs = {name: spec for name, (_, spec) in asked.items()}
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
        if name in _OWN or not values or values[0] is None or any(v != values[0] for v in values):
            continue
        words += _option(one, values[0])
        shared |= set(owners.items())
    for key, spec in specs.items():
        for name, value in changed(spec).items():
            if name not in (*_OWN, "task") and (key, name) not in shared:
                words += ["--set", f"{key}.{name}={_text(declared(type(spec))[name], value)}"]
    return shlex.join(words)


def repeat_command(command: str, spec: Spec) -> str:
    """Return the command line of a command whose options are the fields of ``spec``."""
    words = _start(command, spec)
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
