"""Each command against each input that it reads: other content gives another answer, never the old.

The table compares the identities under which answers are kept; the tests below it run commands
twice with the same ``--out``. Commands that read finished runs are in ``test_bound_folders.py``.
"""

import pkgutil
from pathlib import Path

import pytest

from leakgauge.cli import commands
from leakgauge.runs.room import Room
from support import bound, command
from support.bound import INPUTS
from support.bound_folders import READERS

TABLE = ("people.csv", "--label", "income")
SECRET = ("--secret", "sex")
FAST = ("--rounds", 1, "--trials", 120, "--batch-size", 4)
OWN = ("--adversary", "bound_parts:Small", "--defense", "bound_parts:defense")
TASK = ("--task", "bound_task:build")
OF_TASK = ("task", "code that the task imports", "data of the task", "settings of the task")
OF_CODE = ("own code", "code that own code imports", "file that own code names")
FACES = ("faces", "--label", "smile")
PICTURES = ("image", "CSV of images")
GIVEN = ("membership", "model.pt", *TASK, "--adversary", "loss")

COMMANDS: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "property": (("audit", *TABLE, *SECRET, *FAST, *OWN), ("table", *OF_CODE)),
    "attribute": (("audit", *TABLE, *SECRET, *FAST, *OWN, "--ask", "attribute"),
                  ("table", *OF_CODE)),
    "proportion": (("audit", *TABLE, *SECRET, *FAST[:2], *OWN, "--trials", 300, "--batch-size", 6,
                    "--ask", "proportion"),
                   ("table", *OF_CODE)),
    "user": (("audit", *TABLE, *SECRET, *FAST, "--group", "user", "--ask", "user", *OWN[2:]),
             ("table", *OF_CODE[:2])),
    "property of images": (("audit", *FACES, *SECRET, *FAST), PICTURES),
    "property of a task": (("audit", *TASK, *SECRET, *FAST), OF_TASK),
    "membership of training": (("audit", *TABLE, "--ask", "membership", *OWN[2:]),
                               ("table", *OF_CODE[:2])),
    "membership of a task": (("audit", *TASK, "--ask", "membership"), OF_TASK),
    "layers": (("audit", *TABLE, *SECRET, "--ask", "layers", "--batch-size", 4, *OWN[:2]),
               ("table", *OF_CODE)),
    "layers of a task": (("audit", *TASK, *SECRET, "--ask", "layers", "--batch-size", 4), OF_TASK),
    "timeline": (("audit", *TABLE, "--ask", "timeline", "--batch-size", 4), ("table",)),
    "timeline of a task": (("audit", *TASK, "--ask", "timeline", "--batch-size", 4), OF_TASK),
    "reconstruction": (("audit", *TABLE, "--ask", "reconstruction", *OWN[2:]),
                       ("table", *OF_CODE[:2])),
    "demo": (("demo", "--ask", "property", *FAST, *OWN), OF_CODE),
    "guarantee": (("guarantee", *TABLE, "--attribute", "sex", "--mechanism",
                   "bound_parts:mechanism", "--clip", 2, "--noise", 1), ("table", *OF_CODE[:2])),
    "invert a table": (("invert", *TABLE, "--method", "exact", "--method", "bound_parts:Divided",
                        "--hidden", 8, "--drop", "user", "--weights", "weights.safetensors"),
                       ("table", "weights", "own code")),
    "invert images": (("invert", *FACES, "--lpips", "lpips.safetensors"), (*PICTURES, "lpips")),
    "invert with the data folder": (("invert", *FACES), ("lpips of the data folder",)),
    "invert an update": (("invert", "--update", "update.safetensors", *TASK),
                         ("update", *OF_TASK)),
    "invert a language model": (("invert", "--task", "bound_lm:build", "--batch-size", 2),
                                ("language model", "tokens")),
    "membership of a model": ((*GIVEN, "--members", "in.txt", "--non-members", "out.txt"),
                              ("checkpoint", "members", "non-members", *OF_TASK)),
    "membership of arrays": ((*GIVEN, "--members", "in.npz", "--non-members", "out.txt"),
                             ("members' arrays",)),
    "federation": (("federation", "kept", *TASK, "--filters", "filters.yaml"),
                   ("kept update", "filters", *OF_TASK)),
    "federation of a client": (("federation", "kept", *TASK, "--only-client", "1"),
                               ("kept update",)),
    "grid of a table": (("run", "table.yaml"), ("table",)),
    "grid of own code": (("run", "own.yaml"), ("table", *OF_CODE)),
    "grid of weights": (("run", "weights.yaml"), ("weights",)),
    "grid of two": (("run", "grid.yaml"), ("grid file",)),
}  # fmt: skip


READ_NOTHING = ("schema",)
"""Commands that read no file."""

PRINT_ALONE = {"promise": ["configuration"]}
"""Inputs of commands that print what they read and keep nothing; see ``test_promise.py``."""

SERVE = {"view": "bundle"}
"""Commands that show what another one writes; see ``test_view.py``."""

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "bound-inputs.md"


def inputs_of_commands() -> dict[str, list[str]]:
    """Return what each command reads, by the tables of the tests."""
    found: dict[str, list[str]] = {}
    for words, inputs in COMMANDS.values():
        found.setdefault(str(words[0]), []).extend(inputs)
    for reader in READERS.values():
        found.setdefault(reader.words[0], []).extend(reader.reads)
    found |= PRINT_ALONE | {name: found[other] for name, other in SERVE.items()}
    return {name: list(dict.fromkeys(inputs)) for name, inputs in sorted(found.items())}


def test_the_tables_name_every_command() -> None:
    known = {one.name for one in pkgutil.iter_modules(commands.__path__)}
    assert {*inputs_of_commands(), *READ_NOTHING} == known


def test_the_page_has_the_tables() -> None:
    rows = [f"| `{name}` | {', '.join(inputs)} |" for name, inputs in inputs_of_commands().items()]
    rows += [f"| `{name}` | no file |" for name in READ_NOTHING]
    text = DOCS.read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if line.startswith("| `")] == sorted(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bound")
    bound.write_inputs(made)
    return made


@pytest.mark.parametrize("name", COMMANDS)
def test_changed_content_of_each_input_is_another_identity(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, inputs = COMMANDS[name]
    monkeypatch.setenv("LEAKGAUGE_DATA", str(folder / "data"))
    first = bound.identity(folder, monkeypatch, *words)
    unnoticed = []
    for one in inputs:
        with INPUTS[one].made(folder):
            if bound.identity(folder, monkeypatch, *words) == first:
                unnoticed.append(one)
    assert unnoticed == []
    again = bound.identity(folder, monkeypatch, *words)
    assert again == first, "the content counts, not the time of a file"


def answered(folder: Path, out: Path, *words: object) -> command.Ended:
    """Return how a command ends that keeps its answers in a folder."""
    return command.run(*words, "--out", out, "--json", cwd=folder)


def test_other_members_make_a_new_answer_in_the_same_folder(folder: Path, tmp_path: Path) -> None:
    files = ("--members", "in.txt", "--non-members", "out.txt")
    first = answered(folder, tmp_path, *GIVEN, *files)
    again = answered(folder, tmp_path, *GIVEN, *files)
    with INPUTS["members"].made(folder):
        other = answered(folder, tmp_path, *GIVEN, *files)
    assert [first.returncode, again.returncode, other.returncode] == [0, 0, 0], other.stderr
    assert "belongs to another run" not in again.stderr
    assert "the content of checkpoint, members and non-members changed" in other.stderr
    assert again.stdout == first.stdout != other.stdout


def test_changed_files_are_refused_by_name(folder: Path, tmp_path: Path) -> None:
    words = ("invert", "--update", "update.safetensors", *TASK, "--method", "dlg",
             "--iterations", 2)  # fmt: skip
    assert answered(folder, tmp_path, *words).returncode == 0
    for one, named in {
        "data of the task": "the data",
        "code that the task imports": "bound_task:build",
        "update": "a file that the settings name",
    }.items():
        with INPUTS[one].made(folder):
            ended = answered(folder, tmp_path, *words)
        assert ended.returncode == 2
        assert f"holds another run (the content of {named} changed); choose" in ended.stderr


def test_code_that_changes_during_a_run_keeps_no_answer(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers import it anew, so the figures would mix both versions."""
    words = ("guarantee", *TABLE, "--attribute", "sex", "--mechanism", "bound_parts:mechanism",
             "--clip", 2, "--noise", 1, "--trials", 200, "--canary", "random")  # fmt: skip
    run = Room.run

    def edited(*given: object, **more: object) -> object:
        answer = run(*given, **more)
        (folder / "bound_share.py").write_text("SHARE = 0.7\n")
        return answer

    with INPUTS["code that own code imports"].made(folder), monkeypatch.context() as patch:
        patch.setattr(Room, "run", edited)
        ended = answered(folder, tmp_path, *words)
    assert ended.returncode == 2
    assert "the code of 'bound_parts:mechanism'" in ended.stderr
    assert "changed during the run; repeat" in ended.stderr
    assert not (tmp_path / "cells").exists()
