"""Packages whose names are imported when they are first used (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def attach(
    package: str, places: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package that loads its names when used.

    Args:
        package: its ``__name__``.
        places: for each public name, the module that defines it.

    >>> names, get, _ = attach("leakgauge.core", {"InputError": "leakgauge.core.checks"})
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

    return names, load, lambda: sorted({*vars(sys.modules[package]), *names})
