"""Packages that load their names when they are used."""

import ast
import importlib
from pathlib import Path

import pytest

PACKAGES = ["leakgauge.defenses", "leakgauge.inference"]


@pytest.mark.parametrize("name", PACKAGES)
def test_type_checkers_see_the_names_that_are_loaded(name: str) -> None:
    package = importlib.import_module(name)
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed) == package.__all__
    for public, module in typed.items():
        assert getattr(package, public) is getattr(importlib.import_module(str(module)), public)
        assert public in dir(package)


@pytest.mark.parametrize("name", PACKAGES)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
        importlib.import_module(name).nothing  # noqa: B018
