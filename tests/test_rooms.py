"""Check that shared code does not know questions, and that names do not hide modules."""

import ast
import importlib
import pkgutil
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

import leakgauge
from leakgauge.catalog import questions

SOURCE = Path(leakgauge.__file__).parent
FOLDERS = ("evidence", "runs", "report")
SHARED = [*(path for one in FOLDERS for path in (SOURCE / one).rglob("*")), SOURCE / "cli/app.py"]
FILES = [path for path in SHARED if path.suffix in (".py", ".j2", ".css")]
ABOVE = ("federation", "layers", "tokens")
ROOMS = ("inference", "guarantee", "inversion")

# Strings that are elements of JUnit's XML.
ELEMENTS = {"junit": {"property"}}
# English words that shared code may use.
PLAIN = {"user", "property", "attribute", "proportion", "layers", "federation"}


def names() -> set[str]:
    words = {word for question in questions().values() for word in (question.name, *question.asks)}
    return words | set(ROOMS) | {"invert"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_shared_code_names_no_question(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not [name for name in names() - PLAIN if re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize(
    "path", [one for one in FILES if one.suffix == ".py"], ids=lambda path: path.stem
)
def test_shared_code_compares_with_no_question(path: Path) -> None:
    """A string equal to a game's name would be a special case for it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    strings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert not strings & (names() - {"user"} - ELEMENTS.get(path.stem, set()))


def modules() -> list[str]:
    return [one.name for one in pkgutil.walk_packages(leakgauge.__path__, "leakgauge.")]


def test_no_function_hides_a_module() -> None:
    hidden = []
    for name in modules():
        parent, _, last = name.rpartition(".")
        package = importlib.import_module(parent)
        public = getattr(package, last, None)
        if public is not None and not isinstance(public, type(ast)):
            hidden.append(name)
    assert hidden == []


TWICE = {
    "GuardModel": "each framework's users import theirs, as with KeepUpdates",
    "KeepUpdates": "each framework's users import theirs, under the name that both know",
}
"""Class names that may stand for two classes, and why."""


NAMED = re.compile(r"^\s*class\s+(\w+)|^([A-Z]+[a-z]\w*)\s*=", re.MULTILINE)
"""Finds lines that look like a class or a type alias, without parsing."""


def likely_twice(source: Path) -> list[Path]:
    """Return the files with a name that looks as if it stood for two classes."""
    named = {
        path: [one or other for one, other in NAMED.findall(path.read_text(encoding="utf-8"))]
        for path in source.rglob("*.py")
    }
    counts = Counter(name for names in named.values() for name in names)
    return [path for path, names in named.items() if any(counts[name] > 1 for name in names)]


def class_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of classes, and those of type aliases that differ from each other."""
    classes, aliases = [], set[str]()
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes += [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        targets = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        aliases |= {name for name in names if re.fullmatch(r"[A-Z]+[a-z]\w*", name)}
    return [*classes, *aliases]


def test_no_class_name_stands_for_two_classes() -> None:
    counts = Counter(class_names(likely_twice(SOURCE)))
    assert {name for name, count in counts.items() if count > 1} == set(TWICE)


def test_a_planted_second_class_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class Made:\n    class Inner: ...\n\n\nPair = tuple[int, int]\n"
    )
    assert max(Counter(class_names(tmp_path.rglob("*.py"))).values()) == 1
    assert likely_twice(tmp_path) == []
    (tmp_path / "two.py").write_text("def other():\n    class Made: ...\n\n\nclass Pair: ...\n")
    twice = {
        name for name, count in Counter(class_names(likely_twice(tmp_path))).items() if count > 1
    }
    assert twice == {"Made", "Pair"}


def test_files_are_short() -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py")
    }
    assert {path: n for path, n in lengths.items() if n > 350} == {}
    assert statistics.median(lengths.values()) < 150


def test_a_question_stands_in_its_room_a_command_and_a_line() -> None:
    """Few files outside a room import it, except those on the floor above."""
    for room in ROOMS:
        outside = {
            str(path.relative_to(SOURCE))
            for path in SOURCE.rglob("*.py")
            if not path.is_relative_to(SOURCE / room)
            and not any(path.is_relative_to(SOURCE / above) for above in ABOVE)
            and f"leakgauge.{room}" in path.read_text(encoding="utf-8")
        }
        assert len(outside) <= 2, (room, outside)
        assert outside <= {"catalog.py", *(f"cli/commands/{name}.py" for name in ("invert", room))}
