"""The floors of docs/architecture.md: imports point down, and never in a circle."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "leakgauge"

FLOORS = [
    {"pytest_plugin"},
    {"leakgauge", "__main__"},
    {"api"},
    {"result"},
    {"cli"},
    {"catalog"},
    {"federation", "layers", "tokens"},
    {"inference", "guarantee", "inversion", "membership"},
    {"integrations"},
    {"evidence"},
    {"runs"},
    {"report"},
    {"training"},
    {"defenses"},
    {"data", "models"},
    {"privacy"},
    {"model_checks"},
    {"gradients"},
    {"results"},
    {"core"},
]
RANK = {name: height for height, names in enumerate(reversed(FLOORS)) for name in names}


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules_of(source: Path) -> dict[str, Path]:
    return {module_name(path, source): path for path in source.rglob("*.py")}


def imported(name: str, modules: dict[str, Path]) -> set[str]:
    """Return the imports of a module in its package, also for the type checker and in functions."""
    package = name.split(".")[0]
    found = set()
    for node in ast.walk(ast.parse(modules[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import"
            base = node.module or ""
            found |= {
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                for alias in node.names
            }
    return {target for target in found if target.split(".")[0] == package}


def graph_of(source: Path) -> dict[str, set[str]]:
    modules = modules_of(source)
    return {name: imported(name, modules) for name in modules}


def reachable(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    left = list(graph.get(start, ()))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += graph.get(name, ())
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        beyond = {name: reachable(name, graph) for name in graph}
        inside = [name for name in graph if name in beyond[name]]
        found = {frozenset(o for o in inside if o in beyond[n] and n in beyond[o]) for n in inside}
        return sorted(map(set, found), key=min)
    return []


def floor(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else "leakgauge"


def violations(graph: dict[str, set[str]]) -> list[str]:
    return [
        f"{importer} -> {target}"
        for importer, targets in graph.items()
        for target in targets
        if floor(importer) != floor(target) and RANK[floor(importer)] <= RANK[floor(target)]
    ]


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Return the imports of the sources; made once, and not where only other tests run."""
    return graph_of(SOURCE)


def test_every_place_has_a_floor(graph: dict[str, set[str]]) -> None:
    assert set(map(floor, graph)) <= set(RANK)


def test_imports_point_down(graph: dict[str, set[str]]) -> None:
    assert violations(graph) == []


def test_no_room_imports_another(graph: dict[str, set[str]]) -> None:
    rooms = {"inference", "guarantee", "inversion", "membership"}
    across = [
        f"{importer} -> {target}"
        for importer, targets in graph.items()
        for target in targets
        if floor(importer) != floor(target) and {floor(importer), floor(target)} <= rooms
    ]
    assert across == []


def test_no_circle(graph: dict[str, set[str]]) -> None:
    """Imports for the type checker and those inside functions count."""
    assert circles(graph) == []


@pytest.mark.parametrize(
    "back",
    [
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from made.first import one\n",
        "def other():\n    from made.first import one\n    return one\n",
    ],
    ids=["type checker", "function"],
)
def test_a_planted_circle_is_seen(tmp_path: Path, back: str) -> None:
    package = tmp_path / "made"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "first.py").write_text("import made.second\n\none = 1\n")
    (package / "second.py").write_text("")
    assert circles(graph_of(package)) == []
    (package / "second.py").write_text(back)
    assert circles(graph_of(package)) == [{"made.first", "made.second"}]


@pytest.mark.parametrize("edge", [("results", "runs"), ("report", "inference"), ("data", "models")])
def test_a_back_edge_is_seen(edge: tuple[str, str]) -> None:
    importer, target = (f"leakgauge.{name}" for name in edge)
    assert violations({importer: {target}}) == [f"{importer} -> {target}"]
