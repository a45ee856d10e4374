"""The variables of NVFlare's configurations: ``"{NAME}"`` stands for a value of the same file."""

import re
from collections.abc import Mapping
from typing import Any

from leakgauge.core.checks import require

_WHOLE = re.compile(r"\s*\{([^{}:@]+)\}\s*")


def resolved(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the values of its variables.

    Text that is one variable alone becomes its value, of any type. Variables that the file does not
    define stay as they are.

    Raises:
        InputError: a variable leads to itself.

    >>> resolved({"SIGMA": 0.5, "args": {"noise": "{SIGMA}", "path": "{ROOT}/x"}})["args"]
    {'noise': 0.5, 'path': '{ROOT}/x'}
    """
    found: dict[str, Any] = {}
    return {name: _variable(name, content, found, ()) for name in content}


def _variable(
    name: str, content: Mapping[str, Any], found: dict[str, Any], above: tuple[str, ...]
) -> Any:
    """Return a value of the file; each is made once, however often it is used."""
    require(name not in above, f"has a variable that leads to itself, {name!r}; write its value")
    if name not in found:
        found[name] = _value(content[name], content, found, (*above, name))
    return found[name]


def _value(
    value: Any, content: Mapping[str, Any], found: dict[str, Any], above: tuple[str, ...]
) -> Any:
    if isinstance(value, Mapping):
        return {name: _value(one, content, found, above) for name, one in value.items()}
    if isinstance(value, list):
        return [_value(one, content, found, above) for one in value]
    whole = _WHOLE.fullmatch(value) if isinstance(value, str) else None
    if whole is None or whole[1] not in content:
        return value
    return _variable(whole[1], content, found, above)
