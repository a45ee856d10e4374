"""Help in panels with examples, and the shell's completion."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leakgauge.catalog import questions
from leakgauge.cli import commands, options
from leakgauge.cli.app import app, load_commands
from leakgauge.data.source import DATASETS
from leakgauge.runs.setting import PANELS
from leakgauge.runs.spec import declared
from support.command import run

NAMES = sorted(path.stem for path in Path(commands.__path__[0]).glob("[a-z]*.py"))


def examples(name: str) -> list[str]:
    return re.findall(r"^ *(leakgauge .*?) *$", run(name, "--help").stdout, re.M)


def test_settings_stand_in_panels_in_their_order() -> None:
    page = run("audit", "--help").stdout
    panels = re.findall(r"╭─ (.+?) ─+╮", page)
    assert [one for one in panels if one in PANELS] == list(PANELS)
    defense = page.partition("╭─ Defense")[2].partition("╰")[0]
    assert "--defense" in defense
    assert "MODULE:NAME[:key=value,...]" in defense  # markup is not removed


@pytest.mark.parametrize("question", list(questions().values()), ids=lambda one: one.name)
def test_every_setting_has_a_panel(question) -> None:
    assert {one.setting.panel for one in declared(question.Spec).values()} <= set(PANELS)


@pytest.mark.parametrize("name", NAMES)
def test_examples_name_options_that_exist(name: str) -> None:
    page = run(name, "--help").stdout
    shown = examples(name)
    assert shown
    for line in shown:
        program, command, *words = shlex.split(line.split(" > ")[0])
        assert (program, command) == ("leakgauge", name)
        for word in words:
            assert not word.startswith("--") or f"{word} " in page.partition("Examples")[0], word


def completed(line: str) -> list[str]:
    """Return the completions of the installed program for bash."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    ended = subprocess.run(
        [Path(sys.executable).with_name("leakgauge")],
        capture_output=True,
        text=True,
        env={**os.environ, **words, "_LEAKGAUGE_COMPLETE": "complete_bash"},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("leakgauge gu", ["guarantee"]),
        ("leakgauge audit --ask re", ["reconstruction"]),
        ("leakgauge audit --defense pr", ["prune"]),
        ("leakgauge audit --adversary ag", ["agic"]),
        ("leakgauge audit --optimizer r", ["rmsprop"]),
        ("leakgauge audit --prior ", ["uniform", "empirical"]),
        (
            "leakgauge invert ci",
            ["cifar10", "cifar10-train", "cifar10-full-train", "cifar10-full-test", "cifar100"],
        ),
        ("leakgauge invert --method inv", ["inverting-gradients"]),
    ],
)
def test_the_shell_completes(line: str, offered: list[str]) -> None:
    assert completed(line) == offered


def test_completion_loads_nothing_heavy() -> None:
    code = (
        "import os, sys\n"
        "os.environ |= {'_LEAKGAUGE_COMPLETE': 'complete_bash', 'COMP_CWORD': '3',"
        " 'COMP_WORDS': 'leakgauge audit --adversary '}\n"
        "sys.argv = ['leakgauge']\n"
        "from leakgauge.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'torch', 'pandas', 'sklearn', 'matplotlib'} & set(sys.modules))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.stdout.split("\n")[-2] == "set()", ended.stderr
    assert "forest" in ended.stdout


def test_the_datasets_of_help_are_those_that_open() -> None:
    assert sorted(options.DATASETS) == sorted(DATASETS)


def test_every_command_is_found() -> None:
    load_commands()
    assert sorted(one.name or "" for one in app.registered_commands) == NAMES
