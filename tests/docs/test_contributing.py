"""Follow the steps of CONTRIBUTING that add a defense, a method and an attack word by word."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


class Walk:
    """The files, the registration and the commands of one section."""

    def __init__(self, heading: str) -> None:
        text = TEXT.split(f"## {heading}")[1].split("\n## ")[0]
        saved = r"Save this as `([^`]+)`:\n\n```python\n(.*?)^```$"
        registered = r"Register it in `([^`]+)`.*?^```diff\n(.*?)^```$"
        self.files: list[tuple[str, str]] = re.findall(saved, text, re.M | re.S)
        self.diff = re.search(registered, text, re.M | re.S)
        self.commands: list[str] = re.findall(r"^\$ (.*)$", text, re.M)


WALKS = {
    "defense": Walk("Add a defense in ten minutes"),
    "method": Walk("Add an inversion method in five minutes"),
    "attack": Walk("Add a membership attack in five minutes"),
}
SHOWN = {
    "defense": "energies, decimals:places=2, adaptive",
    "method": "middle:place=0.4",
    "attack": "entropy",
}
COMMANDS = [(name, command) for name, walk in WALKS.items() for command in walk.commands]


def patched(text: str, diff: str) -> str:
    """Insert added lines after their predecessor, or in place of a removed line."""
    last = ""
    for line in diff.splitlines():
        sign, body = line[0], line[1:]
        if sign != "+":
            assert text.count(f"{body[3:] if sign == ' ' else body}\n") == 1, body
            last = body
            if sign == "-":
                continue
        elif f"-{last}" in diff.splitlines():
            text = text.replace(f"{last}\n", f"{body}\n")
        else:
            text = text.replace(f"{last}\n", f"{last}\n{body}\n")
    return text


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the package and the named tests, with the files of the steps."""
    base = tmp_path_factory.mktemp("walk")
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copy(ROOT / "pyproject.toml", base)
    shutil.copytree(ROOT / "src", base / "src", ignore=leave)
    for folder in ("defenses", "inversion", "membership"):
        (base / "tests" / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "defenses" / "test_catalog.py", base / "tests" / "defenses")
    for walk in WALKS.values():
        for name, code in walk.files:
            (base / name).write_text(code, encoding="utf-8")
        assert walk.diff is not None
        catalog = base / walk.diff[1]
        changed = patched(catalog.read_text(encoding="utf-8"), walk.diff[2])
        catalog.write_text(changed, encoding="utf-8")
    return base


def test_the_walks_have_all_their_parts() -> None:
    assert [name for walk in WALKS.values() for name, _ in walk.files] == [
        "src/leakgauge/defenses/decimals.py",
        "tests/defenses/test_decimals.py",
        "src/leakgauge/inversion/middle.py",
        "tests/inversion/test_middle.py",
        "src/leakgauge/membership/adversaries/entropy.py",
        "tests/membership/test_entropy.py",
    ]
    assert len(COMMANDS) == 6


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("walk", "command"), COMMANDS)
def test_each_command_of_the_walks_works(copy: Path, walk: str, command: str) -> None:
    word, *rest = shlex.split(command)
    program = [sys.executable] if word == "python" else [sys.executable, "-m", word]
    done = subprocess.run(
        [*program, *rest],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if word == "leakgauge":
        assert SHOWN[walk] in done.stdout


@pytest.mark.parametrize("words", [("check",), ("format", "--check")])
def test_their_code_is_styled_as_ours(copy: Path, words: tuple[str, ...]) -> None:
    files = [name for walk in WALKS.values() for name, _ in walk.files]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, *files], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
