"""Settings that mean nothing, and errors of libraries, are refused in one line."""

import zipfile
from pathlib import Path

import openpyxl
import pytest

from leakgauge.core.checks import InputError
from leakgauge.models.perceptron import mlp
from support import command
from support.command import run
from support.tables import frame

BASE = ("--secret", "sex", "--label", "income", "--rounds", 1, "--trials", 100, "--batch-size", 4)
LONG = "9" * 5000
ASKED = {
    "an adding defense without noise": (
        ("--defense", "local-dp:clip=1,sensitivity=0,epsilon=1,delta=1e-5"),
        "sensitivity of local-dp is 0; expected a number above 0",
    ),
    "momentum that grows": (("--optimizer", "sgd:momentum=2"), "below 1"),
    "averages that grow": (("--optimizer", "rmsprop:alpha=1"), "below 1"),
    "one CPU of many": (("--device", "cpu:1"), "write cpu"),
    "an encoding of names": (("--encoding", "idna"), "writes names or code, not files"),
    "an encoding of code": (("--encoding", "unicode-escape"), "writes names or code"),
    "no group": (("--group", ""), "--group is empty"),
    "no separator": (("--sep", ""), "--sep is empty"),
    "no column to drop": (("--drop", ""), "--drop is empty"),
    "one layer twice": (("--defense", "prune:layers=first+first"), "names one twice"),
    "digits of another script": (("--fail-if", "advantage.high > ٣"), "write one such as"),
    "digits with lines": (("--fail-if", "advantage.high > 1_0"), "write one such as"),
    "digits of another script in an option": (("--rounds", "٣"), "expected a whole number"),
    "digits of another script in a defense": (("--defense", "quantise:levels=٣"), "whole number"),
    "digits with lines in an option": (("--lr", "1_0"), "expected a number above 0"),
    "no number": (("--lr", "nan"), "expected a number above 0"),
    "a long number": (("--seed", LONG), "(5,000 characters)"),
    "a long number of ranges": (("--bins", f"age={LONG}"), "expected COL=N"),
    "no range": (("--bins", "age=0"), "--bins"),
    "more rounds than end": (("--rounds", 10**17), "at most 10,000,000"),
    "more trials than are drawn in seconds": (("--trials", 10**6), "at most 250,000"),
    "a wide layer": (("--hidden", 10**8), "at most 100,000"),
    "steps of a defense": (("--defense", f"perturb:steps={10**17}"), "at most 10,000,000"),
    "many processes": (("--workers", 99_999_999), "at most 1024"),
    "a memory of 400 digits": (("--max-memory", "9" * 400), "expected a size, for example 4GB"),
    "a memory in digits of another script": (("--max-memory", "٣GB"), "expected a size"),
    "one file for two formats": (
        ("--junit", "x", "--sarif", "./x"),
        "are both 'x'; name two files",
    ),
    "one dash": (("-label", "label"), "No such option '-label'; did you mean '--label'?"),
    "a negative count": (("--ask", "membership", "--set", "membership.at_risk=-1"), "0 or more"),
    "layers that are not there": (
        ("--ask", "membership", "--adversary", "gradients:layers=99"),
        "needs 99 layers with gradients",
    ),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "people.csv"
    frame().to_csv(path, index=False)
    return path


def refused(*words: object, cwd: Path) -> str:
    ended = run(*words, "--out", cwd / "refused", cwd=cwd)
    lines = ended.stderr.splitlines()
    assert ended.returncode == 2, ended.stderr
    assert lines[-1].startswith("error: ")
    assert len(lines[-1]) < 700
    assert "Traceback" not in ended.stderr
    return lines[-1]


@pytest.mark.parametrize("name", ASKED)
def test_what_means_nothing_is_refused(name: str, table: Path, tmp_path: Path) -> None:
    words, says = ASKED[name]
    base = BASE[2:4] if "--ask" in words else BASE
    assert says in refused("audit", table, *base, *words, cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--hidden", 0), "1 or more"),
        (("--hidden", -1), "1 or more"),
        (("--classes", 10**17), "at most 100,000"),
        (("--iterations", 10**9), "at most 10,000,000"),
        (("--restarts", 10**6), "at most 1,000"),
        (("--epochs", 10**9), "at most 10,000,000"),
        (("--local-steps", 10**6), "at most 1,000"),
    ],
)
def test_a_search_without_an_end_is_refused(
    words: tuple[object, ...], says: str, table: Path, tmp_path: Path
) -> None:
    assert says in refused("invert", table, "--label", "income", *words, cwd=tmp_path)


CLAIM = ("--label", "income", "--attribute", "sex", "--clip", 1, "--noise", 1, "--trials", 50)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--private", 1, "--rounds", 1), "--private is 1; expected a whole number of 2 or more"),
        (("--private", 100), "without --rounds nothing is trained"),
        (
            ("--mechanism", "builtins:print", "--canary", "random"),
            "the mechanism released NoneType",
        ),
    ],
)
def test_a_claim_that_means_nothing_is_refused(
    words: tuple[object, ...], says: str, table: Path, tmp_path: Path
) -> None:
    assert says in refused("guarantee", table, *CLAIM, *words, cwd=tmp_path)


TASK = """
import torch
from torch.nn.functional import cross_entropy
from leakgauge import Task, from_arrays
def build():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    secret = (x[:, 0] > 0).long()
    task = Task(torch.nn.Linear(3, 2), cross_entropy)
    return task, from_arrays(x, torch.arange(200) % 4, {"s": secret})
"""


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "--secret", "s", "--rounds", 1, "--batch-size", 2, "--trials", 50),
        ("audit", "--ask", "membership", "--set", "membership.rounds=1"),
    ],
)
def test_a_label_without_an_output_is_refused(words: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "fourclasses.py").write_text(TASK)
    line = refused(words[0], "--task", "fourclasses:build", *words[1:], cwd=tmp_path)
    assert "label that is not among the outputs [2] of a record" in line


@pytest.mark.parametrize("text", [LONG, "٣", "²", "-1", "1.0"])
def test_row_numbers_are_numbers_of_rows(text: str, tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(TASK.replace("% 4", "% 2"))
    (tmp_path / "in.txt").write_text(f"1\n{text}\n", encoding="utf-8")
    (tmp_path / "out.txt").write_text("3\n4\n")
    (tmp_path / "w.py").write_text("")
    import torch

    torch.save(torch.nn.Linear(3, 2).state_dict(), tmp_path / "w.pt")
    words = ("--members", "in.txt", "--non-members", "out.txt", "--task", "rows:build")
    line = refused("membership", "w.pt", *words, cwd=tmp_path)
    assert "one row number a line" in line


DTD = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e "e">]>'


@pytest.mark.parametrize(
    "part", ["xl/worksheets/sheet1.xml", "xl/workbook.xml", "[Content_Types].xml"]
)
@pytest.mark.parametrize("head", [DTD, DTD + "&nothing;", "<", ""])
def test_an_excel_file_that_its_reader_refuses_is_one_line(
    part: str, head: str, tmp_path: Path
) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a", "b"])
    book.active.append([1, 2])
    book.save(tmp_path / "whole.xlsx")
    with (
        zipfile.ZipFile(tmp_path / "whole.xlsx") as whole,
        zipfile.ZipFile(tmp_path / "t.xlsx", "w") as changed,
    ):
        for name in whole.namelist():
            content = whole.read(name).decode()
            new = head + content.partition("?>")[2] if "?>" in content else head + content
            changed.writestr(name, new if name == part else content)
    ended = run("audit", tmp_path / "t.xlsx", *BASE, "--out", tmp_path / "run")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1), ended.stderr


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    assert "no file" in refused("audit", tmp_path / "a.csv", *BASE, cwd=tmp_path)
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "one.png").symlink_to("two.png")
    (folder / "two.png").symlink_to("one.png")
    (folder / "all.csv").write_text("file,label,sex\none.png,a,f\n")
    assert "are missing" in refused("audit", folder, *BASE, cwd=tmp_path)


def test_a_closed_standard_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in refused("audit", "-", *BASE, cwd=tmp_path)


@pytest.mark.process
def test_help_comes_where_the_output_is_no_unicode() -> None:
    """The dots that cut a long word have no place in ASCII."""
    ended = command.process("audit", "--help", PYTHONIOENCODING="ascii", COLUMNS="80")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_network_larger_than_the_memory_is_refused() -> None:
    import torch

    with pytest.raises(InputError, match="of memory, and"):
        mlp(10, 2, (100_000, 100_000, 100_000), generator=torch.Generator())


def test_a_fault_of_the_program_is_one_line_with_its_own_code(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise IndexError("no such\nplace")

    monkeypatch.setattr("leakgauge.runs.audit.prepare_all", fail)
    ended = run("audit", table, *BASE, "--out", tmp_path / "run")
    assert ended.returncode == 1
    assert "a fault of leakgauge or of a library" in ended.stderr
    assert "IndexError: no such (test_meaningless.py" in ended.stderr
    monkeypatch.setenv("LEAKGAUGE_TRACEBACK", "1")
    with pytest.raises(IndexError):
        run("audit", table, *BASE, "--out", tmp_path / "run")
