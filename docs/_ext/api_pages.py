"""Make the reference of the Python names: a page for each documented package."""

import inspect
from importlib import import_module
from typing import Any

PACKAGES = (
    "leakgauge",
    "leakgauge.data",
    "leakgauge.models",
    "leakgauge.gradients",
    "leakgauge.defenses",
    "leakgauge.training",
    "leakgauge.inference",
    "leakgauge.guarantee",
    "leakgauge.membership",
    "leakgauge.inversion",
    "leakgauge.inversion.text",
    "leakgauge.layers",
    "leakgauge.tokens",
    "leakgauge.integrations.lightning",
    "leakgauge.integrations.hugging_face",
    "leakgauge.integrations.hugging_face_task",
    "leakgauge.integrations.opacus",
    "leakgauge.privacy.accounting",
    "leakgauge.privacy.bounds",
    "leakgauge.privacy.information",
    "leakgauge.results.scores",
    "leakgauge.results.roc",
    "leakgauge.core.types",
)
"""Packages and modules whose public names users import."""


def pages() -> dict[str, str]:
    """Return a page of Markdown for each package, by file name."""
    seen: dict[int, str] = {}
    return {f"{name}.md": _page(name, seen) for name in PACKAGES}


def public(package: str) -> list[str]:
    """Return the public names of a package: ``__all__``, or what the module itself defines."""
    module = import_module(package)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == package
    )


def _page(package: str, seen: dict[int, str]) -> str:
    """Return a page with an entry for each name; names that another page documents are links."""
    module = import_module(package)
    entries, elsewhere = [], []
    for name in public(package):
        value = getattr(module, name)
        kind = _kind(value)
        if kind and id(value) in seen:
            role = {"autoclass": "class", "autoexception": "exc", "autofunction": "func"}[kind]
            elsewhere.append(f"{{py:{role}}}`{seen[id(value)]}`")
        elif kind:
            seen[id(value)] = f"{package}.{name}"
            options = "   :members:\n" if kind != "autofunction" else ""
            entries.append(f".. {kind}:: {package}.{name}\n{options}")
    about = inspect.getdoc(module) or ""
    head = f"# `{package}`\n\n```{{eval-rst}}\n.. py:module:: {package}\n```\n\n{_prose(about)}\n"
    also = f"\nAlso in this package: {', '.join(elsewhere)}.\n" if elsewhere else ""
    return f"{head}{also}\n```{{eval-rst}}\n" + "\n".join(entries) + "\n```\n"


def _prose(docstring: str) -> str:
    """Return the docstring of a module as a paragraph."""
    return docstring.replace("References:\n", "References: ").replace("\n    ", " ")


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(value) else ""
