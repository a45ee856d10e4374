"""Parse ``NAME[:key=value,...]``, the notation of defenses, adversaries and attacks."""

import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from leakgauge.core.checks import require, require_known
from leakgauge.core.numbers import MOST, read_number

NEEDED = "needed"
"""Marks a key without a default."""


@dataclass(frozen=True)
class Key:
    """A setting in ``NAME:key=value``.

    Attributes:
        kind: float, int, bool or str.
        default: default value; ``NEEDED`` where users must give one.
    """

    kind: type
    default: Any


@dataclass(frozen=True)
class Notation:
    """The names that an option accepts, and the keys of each, for completion and the schema.

    Attributes:
        names: function that returns the names; fast, loads no torch.
        keys: function that returns the keys of a name; may load torch.
        own: whether ``MODULE:NAME[:key=value,...]`` is allowed as well.
    """

    names: Callable[[], Sequence[str]]
    keys: Callable[[str], Mapping[str, Key]]
    own: bool = False


Kinds = Mapping[str, type]
"""The type of each setting by name: float, int, bool or str."""

TRUTHS = {"0": False, "1": True, "false": False, "true": True}
"""Texts of a truth value, in lower case."""

KINDS = (float, int, bool, str)


def read(text: str, known: Mapping[str, Kinds], what: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings in ``text``.

    Args:
        text: such as ``prune:rate=0.99`` or ``sign``.
        known: the settings that each name takes.
        what: the kind of thing for messages, such as ``"defense"``.

    Raises:
        InputError: the name, a key or a value is not known, or a key occurs twice.

    >>> read("prune:rate=0.9", {"prune": {"rate": float}}, "defense")
    ('prune', {'rate': 0.9})
    >>> read("prune:rat=0.9", {"prune": {"rate": float}}, "defense")
    Traceback (most recent call last):
    leakgauge.core.checks.InputError: defense 'prune' has no setting 'rat'; did you mean 'rate'?
    """
    name, colon, rest = (part.strip() for part in text.partition(":"))
    require_known(name, known, f"{what} {name!r} is not known")
    return name, read_settings(name, rest if colon else None, known[name], what)


def read_settings(name: str, text: str | None, kinds: Kinds, what: str) -> dict[str, Any]:
    """Return the settings in ``key=value,...``; none where ``text`` is None.

    Args:
        name: the name before the colon, for messages.
        text: the text after the name and its colon.
        kinds: the settings that the name takes.
        what: the kind of thing for messages, such as ``"defense"``.

    Raises:
        InputError: a key or a value is not known, or a key occurs twice.

    >>> read_settings("dpsgd", "clip=1,noise=2", {"clip": float, "noise": float}, "defense")
    {'clip': 1.0, 'noise': 2.0}
    """
    settings: dict[str, Any] = {}
    for part in text.split(",") if text is not None else ():
        key, _, value = (side.strip() for side in part.partition("="))
        require(bool(kinds), f"{what} {name!r} takes no settings; write it without {part!r}")
        require_known(key, kinds, f"{what} {name!r} has no setting {key!r}")
        require(key not in settings, f"{what} {f'{name}:{text}'!r} sets {key!r} twice")
        settings[key] = _value(value, kinds[key], f"{name}: {key}")
    return settings


def kinds_of(make: Callable[..., Any], supplied: Collection[str] = ()) -> dict[str, type]:
    """Return the settings of a function or a dataclass: its arguments that take plain values.

    Args:
        make: the function or class; its annotations say which arguments are plain values.
        supplied: arguments that the caller gives, which are not settings.

    >>> def build(rate: float, whole: bool = False, *, batch_size: int): ...
    >>> kinds_of(build, supplied=["batch_size"])
    {'rate': <class 'float'>, 'whole': <class 'bool'>}
    """
    kinds = {key: _kind(one.annotation) for key, one in _arguments(make).items()}
    return {key: kind for key, kind in kinds.items() if kind and key not in supplied}


def keys_of(make: Callable[..., Any], supplied: Collection[str] = ()) -> dict[str, Key]:
    """Return the settings of a function or a dataclass with their defaults, as ``kinds_of``.

    >>> def build(rate: float, whole: bool = False): ...
    >>> keys_of(build)["whole"], keys_of(build)["rate"].default
    (Key(kind=<class 'bool'>, default=False), 'needed')
    """
    arguments, needed = _arguments(make), required_of(make)
    return {
        key: Key(kind, NEEDED if key in needed else arguments[key].default)
        for key, kind in kinds_of(make, supplied).items()
    }


def required_of(make: Callable[..., Any]) -> list[str]:
    """Return the arguments of a function or a dataclass that have no default."""
    empty = inspect.Parameter.empty
    return [key for key, one in _arguments(make).items() if one.default is empty]


def _arguments(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    arguments = inspect.signature(make, eval_str=True).parameters
    return {key: one for key, one in arguments.items() if one.kind not in many}


def _kind(annotation: Any) -> type | None:
    """Return float, int, bool or str for a plain annotation, optional or not; else None."""
    sides = (annotation,)
    if get_origin(annotation) in (Union, types.UnionType):
        sides = tuple(side for side in get_args(annotation) if side is not types.NoneType)
    return sides[0] if len(sides) == 1 and sides[0] in KINDS else None


def _value(value: str, kind: type, what: str) -> Any:
    if kind is bool:
        said = value.lower()
        require(said in TRUTHS, f"{what} is {value!r}; expected 0 or 1, or true or false")
        return TRUTHS[said]
    if kind is str:
        return value
    number = read_number(value, kind, what)
    require(kind is float or number <= MOST, f"{what} is {value}; expected at most {MOST:,}")
    return number
