"""Load the public names of a package on first use (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package that loads names lazily.

    Args:
        package: its ``__name__``.
        places: for each public name, the module that defines it.

    >>> get, _, names = attach("leakgauge.core", {"InputError": "leakgauge.core.checks"})
    >>> names, get("InputError").__name__
    (['InputError'], 'InputError')
    """
    names = sorted(places)

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        vars(sys.modules[package])[name] = value
        return value

    return load, lambda: sorted({*vars(sys.modules[package]), *names}), names


def by_module(modules: Mapping[str, str], root: str = "leakgauge") -> dict[str, str]:
    """Return the module of each name, from the names (between blanks) of each module in ``root``.

    >>> by_module({"core.checks": "InputError require"})["require"]
    'leakgauge.core.checks'
    """
    return {name: f"{root}.{module}" for module, names in modules.items() for name in names.split()}
