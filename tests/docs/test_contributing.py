"""Follow the steps of CONTRIBUTING's 'add a defense' word by word."""

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
WALK = TEXT.split("## Add a defense in ten minutes")[1].split("\n## ")[0]
FILES = re.findall(r"Save this as `([^`]+)`:\n\n```python\n(.*?)^```$", WALK, re.M | re.S)
DIFF = re.search(r"Register it in `([^`]+)`.*?^```diff\n(.*?)^```$", WALK, re.M | re.S)
COMMANDS = re.findall(r"^\$ (.*)$", WALK, re.M)


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
    (base / "tests" / "defenses").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "defenses" / "test_catalog.py", base / "tests" / "defenses")
    for name, code in FILES:
        (base / name).write_text(code, encoding="utf-8")
    assert DIFF is not None
    catalog = base / DIFF[1]
    catalog.write_text(patched(catalog.read_text(encoding="utf-8"), DIFF[2]), encoding="utf-8")
    return base


def test_the_walk_has_all_its_parts() -> None:
    assert [name for name, _ in FILES] == [
        "src/leakgauge/defenses/decimals.py",
        "tests/defenses/test_decimals.py",
    ]
    assert len(COMMANDS) == 2


@pytest.mark.process
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_walk_works(copy: Path, command: str) -> None:
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
        assert "energies, decimals:places=2, adaptive" in done.stdout


@pytest.mark.parametrize("words", [("check",), ("format", "--check")])
def test_its_code_is_styled_as_ours(copy: Path, words: tuple[str, ...]) -> None:
    files = [name for name, _ in FILES]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *words, *files], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
