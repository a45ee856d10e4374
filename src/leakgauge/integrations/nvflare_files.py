"""Read which filters a configuration of NVFlare switches on, and what they cover.

A client's ``task_result_filters`` change what leaves it; its ``task_data_filters`` change what
arrives. Filters of the server come after both. A site's ``privacy.json`` has such lists for each
scope; a job without a scope runs in the default one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

from leakgauge.core.checks import require
from leakgauge.integrations.nvflare_values import resolved
from leakgauge.integrations.switched_on import (
    FilterFile,
    SwitchedOn,
    list_of,
    stated_rounds,
    switched_on,
)

RESULTS, DATA = "task_result_filters", "task_data_filters"
ARRIVING = "in task_data_filters it changes what arrives, not what the client sends"
OUTGOING = "it filters what the server sends, not the clients' updates"
AT_SERVER = "the server applies it to updates that it has already received"


def is_configuration(content: Mapping[str, Any]) -> bool:
    """Return whether a file is one of NVFlare's that may name filters."""
    known = (RESULTS, DATA, "executors", "workflows", "scopes")
    return any(name in content for name in known)


def filters_of(content: Mapping[str, Any]) -> FilterFile:
    """Return the filters of a configuration, with the values of its variables.

    Raises:
        InputError: a part has another form than NVFlare's.
    """
    content = resolved(content)
    rounds, unknown = _workflow_rounds(content)
    scopes = [_scope_name(one) for one in list_of(content.get("scopes"), "scopes")]
    filters = (*_of_tasks(content), *_of_scopes(content))
    notes = (*unknown, *_open_scopes(scopes, filters, str(content.get("default_scope", ""))))
    return FilterFile(filters, stated_rounds(rounds), tuple(scopes), notes)


def _of_tasks(content: Mapping[str, Any]) -> Iterator[SwitchedOn]:
    server = "workflows" in content
    sent = _tasks(content)
    for chain in (RESULTS, DATA):
        for entry in list_of(content.get(chain), chain):
            require(isinstance(entry, Mapping), f"{chain} has {entry!r}; expected tasks, filters")
            direction = str(entry.get("direction", "")).lower()
            tasks = [str(one) for one in list_of(entry.get("tasks"), f"{chain}: tasks")]
            place = _place(chain, direction, server=server)
            open_ = [one for one in sent if not any(fnmatch(one, task) for task in tasks)]
            for one in _entries(entry.get("filters"), chain, place):
                if one.leaving and chain == RESULTS and open_:
                    notes = tuple(
                        f"results of the task {task!r} leave without it" for task in open_
                    )
                    one = replace(one, notes=notes, covers=False)
                yield one


def _of_scopes(content: Mapping[str, Any]) -> Iterator[SwitchedOn]:
    for scope in list_of(content.get("scopes"), "scopes"):
        name = _scope_name(scope)
        for chain in (RESULTS, DATA):
            for one in _entries(scope.get(chain), chain, _place(chain, "", server=False)):
                yield replace(one, scope=name)


def _scope_name(scope: Any) -> str:
    require(isinstance(scope, Mapping), f"scopes has {scope!r}; expected a mapping")
    return str(scope.get("name", "without a name"))


def _open_scopes(scopes: list[str], filters: tuple[SwitchedOn, ...], default: str) -> Iterator[str]:
    """Return a note for each scope in which what leaves is not filtered."""
    for name in scopes:
        if not any(one.scope == name and one.covers for one in filters):
            usual = ", in which a job without a scope runs," if name == default else ""
            yield f"the scope {name!r}{usual} has no filter for what leaves"


def _place(chain: str, direction: str, *, server: bool) -> tuple[str, ...]:
    """Return why a chain does not change what a client sends; empty if it does."""
    if server:
        return (AT_SERVER if chain == RESULTS else OUTGOING,)
    leaves = direction == "out" or (direction == "" and chain == RESULTS)
    return () if leaves else (ARRIVING,)


def _tasks(content: Mapping[str, Any]) -> list[str]:
    """Return the tasks whose results hold a model, by the executors that run them."""
    found = []
    for one in list_of(content.get("executors"), "executors"):
        names = list_of(one.get("tasks"), "tasks") if isinstance(one, Mapping) else []
        found += [str(name) for name in names if str(name) in ("train", "submit_model")]
    return list(dict.fromkeys(found))


def _entries(values: Any, chain: str, place: tuple[str, ...]) -> Iterator[SwitchedOn]:
    """Return the filters of a chain; a place says why they do not change what leaves."""
    for one in list_of(values, f"{chain}: filters"):
        require(isinstance(one, Mapping), f"{chain} has the filter {one!r}; expected path and args")
        path = next((one[key] for key in ("path", "class_path", "name") if key in one), None)
        require(path is not None, f"{chain} has a filter without path and name")
        yield replace(switched_on(path, one.get("args"), place), leaving=not place)


def _workflow_rounds(content: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the rounds of the first workflow that states them, or a note of what it says."""
    for one in list_of(content.get("workflows"), "workflows"):
        arguments = one.get("args") if isinstance(one, Mapping) else None
        if isinstance(arguments, Mapping) and "num_rounds" in arguments:
            found = arguments["num_rounds"]
            if isinstance(found, str) and "{" in found:
                return None, (f"the file does not define its rounds, {found}; give --rounds",)
            return found, ()
    return None, ()
