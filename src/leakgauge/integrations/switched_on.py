"""A filter that a configuration switches on, and how its parts are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leakgauge.core.checks import require


@dataclass(frozen=True)
class SwitchedOn:
    """A filter in a configuration.

    Attributes:
        name: name of its class, without the module.
        path: as the file writes it.
        arguments: its arguments by name, as the file writes them.
        notes: what limits it in this file, a sentence each.
        covers: whether it changes everything that a client sends of a model.
        leaving: whether it changes what a client sends at all.
        scope: the scope of a privacy policy to which it belongs; empty where there are no scopes.
    """

    name: str
    path: str
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    covers: bool = True
    leaving: bool = True
    scope: str = ""


@dataclass(frozen=True)
class FilterFile:
    """The filters of a configuration.

    Attributes:
        filters: in their order.
        rounds: number of rounds that the file states; None if it states none.
        scopes: all scopes of a privacy policy, also those without a filter; empty if it has none.
        notes: what the file says beside its filters, a sentence each.
    """

    filters: tuple[SwitchedOn, ...]
    rounds: int | None = None
    scopes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def switched_on(path: Any, arguments: Any, notes: tuple[str, ...] = ()) -> SwitchedOn:
    """Return a filter by the path of its class; it covers everything where no note limits it.

    Raises:
        InputError: the path is no text, or the arguments are no mapping.

    >>> switched_on("a.module.Filter", {"epsilon": 1}).name
    'Filter'
    """
    require(isinstance(path, str) and path != "", f"a filter has the path {path!r}; expected text")
    given = {} if arguments is None else arguments
    require(
        isinstance(given, Mapping) and all(isinstance(one, str) for one in given),
        f"{path} has the arguments {given!r}; expected a mapping of names to values",
    )
    return SwitchedOn(path.rpartition(".")[2], path, given, notes, covers=not notes)


def stated_rounds(value: Any) -> int | None:
    """Return a number of rounds, or None where the file states none.

    Raises:
        InputError: it is no whole number from 1 to a million.
    """
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1_000_000
    require(whole, f"has {value!r} rounds; expected a whole number from 1 to 1,000,000")
    return int(value)


def list_of(values: Any, name: str) -> list[Any]:
    """Return a list, empty for None.

    Raises:
        InputError: it is something else.
    """
    require(values is None or isinstance(values, list), f"{name} is {values!r}; expected a list")
    return values or []
