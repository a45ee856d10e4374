"""Read which filters a federation's configuration switches on, with their arguments.

| file | is read for |
|---|---|
| NVFlare's ``config_fed_client.json``, ``config_fed_server.json`` | ``task_result_filters``, \
``task_data_filters`` |
| NVFlare's ``privacy.json`` | the filters of its scopes |
| Flower's ``pyproject.toml`` | settings of its mods and strategies in ``[tool.flwr.app.config]`` |
| YAML | ``mods:`` and ``strategy:``, each a name or a name with its arguments |
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError, require
from leakgauge.core.outside import parse_json, parse_yaml, written_text

EXPECTED = "NVFlare's config_fed_client.json, Flower's pyproject.toml, or YAML with mods"
RESULTS, DATA = "task_result_filters", "task_data_filters"
ARRIVING = "it filters what arrives, so what the client sends leaves without it"
OUTGOING = "it filters what the server sends, not the clients' updates"
AT_SERVER = "the server applies it to updates that it has already received"

OF_CONFIG = {
    "LocalDpMod": ("clipping-norm", "sensitivity", "epsilon", "delta"),
    "DifferentialPrivacyClientSideFixedClipping": (
        "noise-multiplier",
        "clipping-norm",
        "num-sampled-clients",
    ),
}
"""The settings in Flower's ``pyproject.toml`` by which a mod or a strategy is recognised."""


@dataclass(frozen=True)
class SwitchedOn:
    """A filter in a configuration.

    Attributes:
        name: name of its class, without the module.
        path: as the file writes it.
        arguments: its arguments by name, as the file writes them.
        notes: what limits it in this file, a sentence each.
        covers: whether it changes everything that a client sends of a model.
    """

    name: str
    path: str
    arguments: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    covers: bool = True


@dataclass(frozen=True)
class FilterFile:
    """The filters of a configuration.

    Attributes:
        filters: in their order.
        rounds: number of rounds that the file states; None if it states none.
    """

    filters: tuple[SwitchedOn, ...]
    rounds: int | None = None


def read_filters(path: Path) -> FilterFile:
    """Return the filters that a configuration switches on.

    Raises:
        InputError: the file is no such configuration, or is malformed; one line that names it.
    """
    try:
        return _read(path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _read(path: Path) -> FilterFile:
    require(
        path.suffix != ".conf",
        "is HOCON; convert it to JSON first, for example with pyhocon -f json",
    )
    text = written_text(path, EXPECTED)
    if path.suffix == ".toml":
        return _of_flower(_toml(text))
    content = parse_json(text) if path.suffix == ".json" else parse_yaml(text)
    require(isinstance(content, Mapping), f"holds no mapping; expected {EXPECTED}")
    if {"mods", "strategy"} & set(content):
        unknown = [name for name in content if name not in ("mods", "strategy", "rounds")]
        require(not unknown, f"has {unknown[:1]}; expected mods, strategy and rounds alone")
        mods = [one for key in ("mods", "strategy") for one in _mods(content.get(key), key)]
        return FilterFile(tuple(mods), _rounds(content.get("rounds")))
    known = (RESULTS, DATA, "executors", "workflows", "scopes")
    require(any(name in content for name in known), f"has no filters; expected {EXPECTED}")
    return FilterFile(tuple(_of_nvflare(content)), _rounds(_workflow_rounds(content)))


def _toml(text: str) -> Mapping[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"is not TOML: {error}") from error


def _of_flower(content: Mapping[str, Any]) -> FilterFile:
    """Return what the settings of a Flower app stand for; its mods themselves are in its code."""
    config: Any = content
    for key in ("tool", "flwr", "app", "config"):
        config = config.get(key, {}) if isinstance(config, Mapping) else {}
    require(
        isinstance(config, Mapping) and bool(config),
        "has no [tool.flwr.app.config]; expected the pyproject.toml of a Flower app",
    )
    settings = {str(name).replace("_", "-"): value for name, value in config.items()}
    found = [
        SwitchedOn(
            name,
            name,
            {one.replace("-", "_"): settings[one] for one in needed},
            (f"{name} is assumed from the settings {', '.join(needed)}; the app's code decides",),
        )
        for name, needed in OF_CONFIG.items()
        if set(needed) <= set(settings)
    ]
    wanted = " or ".join(", ".join(needed) for needed in OF_CONFIG.values())
    require(
        bool(found),
        f"states no filter; expected the settings {wanted} in [tool.flwr.app.config], or name the "
        "mods in YAML",
    )
    return FilterFile(tuple(found), _rounds(settings.get("num-server-rounds")))


def _mods(values: Any, key: str) -> Iterator[SwitchedOn]:
    for one in values if isinstance(values, list) else [values] * (values is not None):
        items = {one: {}} if isinstance(one, str) else one
        require(
            isinstance(items, Mapping) and len(items) > 0,
            f"{key} has {one!r}; expected a name, or NAME: {{argument: value}}",
        )
        for path, arguments in items.items():
            yield _switched_on(path, arguments, ())


def _of_nvflare(content: Mapping[str, Any]) -> Iterator[SwitchedOn]:
    server = "workflows" in content
    sent = _tasks(content)
    for chain in (RESULTS, DATA):
        for entry in _list(content.get(chain), chain):
            require(isinstance(entry, Mapping), f"{chain} has {entry!r}; expected tasks, filters")
            direction = str(entry.get("direction", "")).lower()
            tasks = [str(one) for one in _list(entry.get("tasks"), f"{chain}: tasks")]
            notes = _place(chain, direction, server=server)
            if not notes and chain == RESULTS:
                open_ = [one for one in sent if not any(fnmatch(one, task) for task in tasks)]
                notes += tuple(f"results of the task {one!r} leave without it" for one in open_)
            yield from _entries(entry.get("filters"), chain, notes)
    for scope in _list(content.get("scopes"), "scopes"):
        require(isinstance(scope, Mapping), f"scopes has {scope!r}; expected a mapping")
        for chain in (RESULTS, DATA):
            yield from _entries(scope.get(chain), chain, _place(chain, "", server=server))


def _place(chain: str, direction: str, *, server: bool) -> tuple[str, ...]:
    """Return why a chain does not change what a client sends; empty if it does."""
    if server:
        return (AT_SERVER if chain == RESULTS else OUTGOING,)
    leaves = direction == "out" or (direction == "" and chain == RESULTS)
    return () if leaves else (ARRIVING,)


def _tasks(content: Mapping[str, Any]) -> list[str]:
    """Return the tasks whose results hold a model, by the executors that run them."""
    found = []
    for one in _list(content.get("executors"), "executors"):
        names = _list(one.get("tasks"), "tasks") if isinstance(one, Mapping) else []
        found += [str(name) for name in names if str(name) in ("train", "submit_model")]
    return list(dict.fromkeys(found))


def _entries(values: Any, chain: str, notes: tuple[str, ...]) -> Iterator[SwitchedOn]:
    for one in _list(values, f"{chain}: filters"):
        require(isinstance(one, Mapping), f"{chain} has the filter {one!r}; expected path and args")
        path = next((one[key] for key in ("path", "class_path", "name") if key in one), None)
        require(path is not None, f"{chain} has a filter without path and name")
        yield _switched_on(path, one.get("args"), notes)


def _switched_on(path: Any, arguments: Any, notes: tuple[str, ...]) -> SwitchedOn:
    require(isinstance(path, str) and path != "", f"a filter has the path {path!r}; expected text")
    given = {} if arguments is None else arguments
    require(
        isinstance(given, Mapping) and all(isinstance(one, str) for one in given),
        f"{path} has the arguments {given!r}; expected a mapping of names to values",
    )
    return SwitchedOn(path.rpartition(".")[2], path, given, notes, covers=not notes)


def _workflow_rounds(content: Mapping[str, Any]) -> Any:
    """Return the number of rounds of the first workflow that states one."""
    for one in _list(content.get("workflows"), "workflows"):
        arguments = one.get("args") if isinstance(one, Mapping) else None
        if isinstance(arguments, Mapping) and "num_rounds" in arguments:
            return arguments["num_rounds"]
    return None


def _rounds(value: Any) -> int | None:
    if value is None:
        return None
    whole = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 1_000_000
    require(whole, f"has {value!r} rounds; expected a whole number from 1 to 1,000,000")
    return int(value)


def _list(values: Any, name: str) -> list[Any]:
    require(values is None or isinstance(values, list), f"{name} is {values!r}; expected a list")
    return values or []
