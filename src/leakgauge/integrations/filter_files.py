"""Read which filters a federation's configuration switches on, with their arguments.

| file | is read for |
|---|---|
| NVFlare's ``config_fed_client`` and ``config_fed_server`` (JSON, YAML, HOCON) | \
``task_result_filters``, ``task_data_filters`` |
| NVFlare's ``privacy.json`` | the filters of its scopes |
| Flower's ``pyproject.toml`` | settings of its mods and strategies in ``[tool.flwr.app.config]`` |
| YAML | ``mods:`` and ``strategy:``, each a name or a name with its arguments |
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from leakgauge.core.checks import InputError, require
from leakgauge.core.outside import parse_json, parse_yaml, written_text
from leakgauge.integrations import nvflare_files
from leakgauge.integrations.hocon import parse_hocon
from leakgauge.integrations.switched_on import FilterFile, SwitchedOn, stated_rounds, switched_on

EXPECTED = "NVFlare's config_fed_client.json, Flower's pyproject.toml, or YAML with mods"

OF_CONFIG = {
    "LocalDpMod": ("clipping-norm", "sensitivity", "epsilon", "delta"),
    "DifferentialPrivacyClientSideFixedClipping": (
        "noise-multiplier",
        "clipping-norm",
        "num-sampled-clients",
    ),
}
"""The settings in Flower's ``pyproject.toml`` by which a mod or a strategy is recognised."""

CLIPPING = {
    "DifferentialPrivacyClientSideFixedClipping": "fixedclipping_mod",
    "DifferentialPrivacyClientSideAdaptiveClipping": "adaptiveclipping_mod",
}
"""The mod of clients without which a strategy of Flower clips nothing."""


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
    text = written_text(path, EXPECTED)
    if path.suffix == ".toml":
        return _of_flower(_toml(text))
    parse = {".json": parse_json, ".conf": parse_hocon}.get(path.suffix, parse_yaml)
    content = parse(text)
    require(isinstance(content, Mapping), f"holds no mapping; expected {EXPECTED}")
    if {"mods", "strategy"} & set(content):
        return _of_mods(content)
    require(nvflare_files.is_configuration(content), f"has no filters; expected {EXPECTED}")
    return nvflare_files.filters_of(content)


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
            tuple(_assumed(name, needed)),
        )
        for name, needed in OF_CONFIG.items()
        if set(needed) <= set(settings)
    ]
    wanted = " or ".join(", ".join(needed) for needed in OF_CONFIG.values())
    require(
        bool(found),
        "states no filter, since mods stand in the app's Python code; name them in YAML, or state "
        f"the settings {wanted} in [tool.flwr.app.config]",
    )
    return FilterFile(tuple(found), stated_rounds(settings.get("num-server-rounds")))


def _assumed(name: str, needed: tuple[str, ...]) -> Iterator[str]:
    yield f"{name} is assumed from the settings {', '.join(needed)}; the app's code decides"
    if name in CLIPPING:
        yield f"it clips nothing unless the client's code has {CLIPPING[name]}"


def _of_mods(content: Mapping[str, Any]) -> FilterFile:
    unknown = [name for name in content if name not in ("mods", "strategy", "rounds")]
    require(not unknown, f"has {unknown[:1]}; expected mods, strategy and rounds alone")
    mods = [one for key in ("mods", "strategy") for one in _mods(content.get(key), key)]
    names = {one.name for one in mods}
    return FilterFile(
        tuple(_with_its_mod(one, names) for one in mods), stated_rounds(content.get("rounds"))
    )


def _mods(values: Any, key: str) -> Iterator[SwitchedOn]:
    for one in values if isinstance(values, list) else [values] * (values is not None):
        items = {one: {}} if isinstance(one, str) else one
        require(
            isinstance(items, Mapping) and len(items) > 0,
            f"{key} has {one!r}; expected a name, or NAME: {{argument: value}}",
        )
        for path, arguments in items.items():
            yield switched_on(path, arguments)


def _with_its_mod(one: SwitchedOn, names: set[str]) -> SwitchedOn:
    """Return a strategy with a note where the mod that clips for it is missing."""
    mod = CLIPPING.get(one.name)
    if mod is None or mod in names:
        return one
    note = f"the file has no {mod}, without which clients clip nothing: add it to mods"
    return replace(one, notes=(*one.notes, note), covers=False)
