"""Command lines drawn from the declared settings, and words that mean nothing.

Most are stopped after everything is read and checked, since a legal ``--trials 10000000`` takes
days. Those whose numbers lie at the low end of their bounds run to the end.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from typer.main import get_command

from leakgauge.catalog import questions
from leakgauge.cli.app import app, load_commands
from leakgauge.cli.commands import federation, membership
from leakgauge.cli.commands.audit import MAIN
from leakgauge.cli.stopping import REFUSED
from leakgauge.core.numbers import MOST
from leakgauge.core.parsing import Key, Notation
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import declared
from support import bound
from support.drawn import inside, outside
from support.fuzz import examples, junk, tried

LOW = 3
"""How far above its least value a whole number may lie in a command that runs to the end."""

SPECS = {name: one.Spec for name, one in questions().items()}


@dataclass(frozen=True)
class Base:
    """A command line that is right, and what may be added to it.

    Attributes:
        words: the command and its arguments.
        options: options and their values, which drawn ones replace.
        known: the settings that the command has an option for.
        runs: whether it is fast enough to run to the end.
    """

    words: tuple[str, ...]
    options: Mapping[str, object]
    known: Mapping[str, Declared]
    runs: bool = True

    def line(self, drawn: list[str]) -> list[object]:
        given = {one.partition("=")[0] for one in drawn}
        kept = [(key, one) for key, one in self.options.items() if key not in given]
        return [*self.words, *(part for pair in kept for part in pair), *drawn]


def settings_of(kind: Any, *, only: Any = None, without: Any = ()) -> dict[str, Declared]:
    known = {name: one for name, one in declared(kind).items() if one.setting.option}
    return {
        name: one
        for name, one in known.items()
        if name not in without and (only is None or name in only)
    }


PEOPLE = {"--label": "income"}
FAST = {"--rounds": 1, "--trials": 60, "--batch-size": 4, "--adversary": "logistic",
        "--shadow": 20, "--workers": 1}  # fmt: skip
TASK = {"--task": "bound_task:build"}
AUDIT = settings_of(MAIN)
INVERT = settings_of(SPECS["reconstruction"], without=("ask",))
CLAIM = settings_of(SPECS["guarantee"], without=("ask", "task", "defense"))
FEDERATED = settings_of(
    SPECS["federation"],
    only={*federation.SHARED, *(set(declared(SPECS["federation"])) - set(declared(MAIN.__base__)))},
)
GIVEN = settings_of(SPECS["membership"], only=membership.ATTACKING)
SEARCH = {"--iterations": 2}

BASES = (
    Base(("audit", "people.csv"), {**PEOPLE, "--secret": "sex", **FAST}, AUDIT),
    Base(("audit", "people.csv"), {**PEOPLE, "--secret": "sex", **FAST, "--group": "user",
         "--ask": "user"}, AUDIT, runs=False),
    Base(("audit", "people.csv"), {**PEOPLE, "--secret": "sex", "--ask": "layers",
         "--batch-size": 4}, AUDIT, runs=False),
    Base(("audit", "people.csv"), {**PEOPLE, "--ask": "timeline", "--batch-size": 4}, AUDIT,
         runs=False),
    Base(("audit", "faces"), {"--label": "smile", "--secret": "sex", **FAST}, AUDIT, runs=False),
    Base(("audit",), {**TASK, "--secret": "sex", **FAST}, AUDIT, runs=False),
    Base(("demo",), {"--rounds": 1, "--trials": 60}, settings_of(MAIN, only=(
         "ask", "adversary", "defense", "batch_size", "rounds", "trials", "shadow", "seed")),
         runs=False),
    Base(("invert", "people.csv"), {**PEOPLE, "--method": "exact", "--hidden": 8, "--drop": "user"},
         INVERT),
    Base(("invert", "faces"), {"--label": "smile", "--images": 2, "--net": "slim", **SEARCH},
         INVERT, runs=False),
    Base(("invert",), {"--update": "update.safetensors", **TASK, **SEARCH}, INVERT),
    Base(("guarantee", "people.csv"), {**PEOPLE, "--attribute": "sex", "--clip": 2, "--noise": 1,
         "--trials": 60, "--canary": "random"}, CLAIM),
    Base(("membership", "model.pt"), {**TASK, "--members": "in.txt", "--non-members": "out.txt",
         "--adversary": "loss"}, GIVEN),
    Base(("federation", "kept"), {**TASK, **SEARCH, "--ask": "membership"}, FEDERATED),
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A drawn command line.

    Attributes:
        words: the words.
        measure: whether it runs to its end.
        wrong: the option that must be refused by name; empty where all may be right.
    """

    words: list[object] = field(default_factory=list)
    measure: bool = False
    wrong: str = ""


def written(value: object) -> str:
    """Return a value of one item as a user writes it."""
    if isinstance(value, Mapping):
        return "".join(f"{name}={one}" for name, one in value.items()) or "age=2"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def low(one: Declared) -> st.SearchStrategy[Any]:
    """Return right values that cost little, as far as a bound can say it."""
    setting = one.setting
    if one.item is int and one.name != "seed":
        least = 1 if setting.least is None else int(setting.least)
        return st.integers(least, least + LOW)
    if one.item is float:
        least = setting.least if setting.least is not None else setting.above or 0.0
        return st.floats(least + 1e-3, least + 2, allow_nan=False)
    return inside(one)


NUMBERS = ("0", "-1", "1", "2", "0.5", "1.5", "1e-30", "1e9", str(MOST), str(10**17), "nan")


@st.composite
def named(draw: st.DrawFn, notation: Notation) -> str:
    """Draw a name with some of its keys, whose values may be wrong."""
    name = draw(st.sampled_from([one for one in notation.names() if one != "all"] or ["x"]))
    keys: Mapping[str, Key] = notation.keys(name)
    chosen = draw(st.lists(st.sampled_from([*keys]), max_size=5, unique=True)) if keys else []
    value = st.sampled_from(NUMBERS) | junk
    return name + "".join(
        f"{',' if at else ':'}{key}={draw(value)}" for at, key in enumerate(chosen)
    )


@st.composite
def option(draw: st.DrawFn, one: Declared, way: str) -> list[str]:
    """Draw an option with its value."""
    if one.item is bool:
        return [one.flag]
    if way == "outside":
        value: Any = draw(st.sampled_from(outside(one)))
    elif way == "junk":
        value = draw(junk)
    elif one.setting.notation and draw(st.booleans()):
        value = draw(named(one.setting.notation))
    else:
        value = draw(low(one) if way == "low" else inside(one))
    return [one.flag, written(value)]


WAYS = ("low", "low", "low", "inside", "inside", "outside", "outside", "junk")


@st.composite
def right_or_wrong(draw: st.DrawFn) -> Line:
    """Draw a command with a few options, of which one may be outside of its bounds."""
    base = draw(st.sampled_from(BASES))
    way = draw(st.sampled_from(WAYS))
    fields = list(base.known.values())
    if way == "outside":
        one = draw(st.sampled_from([each for each in fields if outside(each)]))
        return Line(base.line(draw(option(one, way))), wrong=one.flag)
    some = draw(st.lists(st.sampled_from(fields), min_size=1, max_size=3, unique_by=id))
    words = [word for one in some for word in draw(option(one, way))]
    return Line(base.line(words), measure=way == "low" and base.runs)


SHARED_OPTIONS = ("--workers", "--max-memory", "--junit", "--sarif", "--markdown", "--fail-if",
                  "--set", "--out", "--against", "--controls", "--json", "--verbose", "-v",
                  "--help", "--version")  # fmt: skip
RULES = ("advantage.high > 0.05", "advantage > 2", "accuracy.low<.5", "psnr >= 20", "property.x>1",
         "advantage.difference.low > 0.02", "auroc.after<.2", "x.difference.y > 1")  # fmt: skip
SIZES = ("1GB", "٣GB", "9" * 400, "0", "-1GB", "1e99TB", "1 EB", "4KB", "nan", "GB")


@st.composite
def other_words(draw: st.DrawFn) -> Line:
    """Draw a command with words that are no settings: gates, files, ``--set``, none at all."""
    base = draw(st.sampled_from(BASES))
    line = base.line([])
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(SHARED_OPTIONS))
        question = draw(st.sampled_from([*SPECS]))
        one = draw(st.sampled_from([*declared(SPECS[question]).values()]))
        values = {
            "--set": st.sampled_from([f"{question}.{one.name}={written(each)}"
                                      for each in outside(one) or ["x"]])
            | junk.map(f"{question}.{one.name}={{}}".format),
            "--fail-if": st.sampled_from(RULES),
            "--max-memory": st.sampled_from(SIZES),
            "--workers": st.sampled_from(NUMBERS),
        }  # fmt: skip
        value = draw(values.get(name, junk) | junk)
        alone = name in ("--controls", "--json", "--verbose", "-v", "--help", "--version")
        at = draw(st.integers(0, len(line)))
        line[at:at] = [name] if alone else [name, value]
    return Line(line)


FILES = ("people.csv", "faces", "model.pt", "kept", "finished", "grid", "table.yaml", "in.txt", "-",
         "bound_task.py", "finished/run.yaml", "finished/audit-card.json", "nowhere",
         "bound_task:build", "records.npz", "in.npz", "update.safetensors", "adult")  # fmt: skip
ARGUMENTS = {"audit": 1, "invert": 1, "membership": 1, "federation": 1, "guarantee": 1, "card": 1,
             "verify": 2, "report": 1, "compare": 2, "run": 1, "schema": 0, "demo": 0}  # fmt: skip


@st.composite
def shuffled(draw: st.DrawFn) -> Line:
    """Draw a command with any files and words in its places."""
    name = draw(st.sampled_from([*ARGUMENTS]))
    words = [draw(st.sampled_from(FILES) | junk) for _ in range(ARGUMENTS[name])]
    params = get_command(app).commands[name].params  # type: ignore[attr-defined]
    options = [one for one in params if one.param_type_name == "option"]
    for _ in range(draw(st.integers(0, 3)) if options else 0):
        one = draw(st.sampled_from(options))
        flag = max(one.opts, key=len)
        words += [flag] if one.is_flag else [flag, draw(st.sampled_from(FILES) | junk)]
    return Line([draw(junk) if draw(st.integers(0, 20)) == 20 else name, *words])


LINES = st.one_of(right_or_wrong(), right_or_wrong(), right_or_wrong(), other_words(), shuffled())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    bound.write_inputs(made)
    finished = ("audit", "people.csv", "--label", "income", "--secret", "sex")
    words = [part for pair in FAST.items() for part in pair]
    assert tried(*finished, *words, "--out", "finished", cwd=made).returncode == 0
    assert tried("run", "table.yaml", "--out", "grid", cwd=made).returncode == 0
    assert tried("card", "finished", cwd=made).returncode == 0
    return made


def end_soundly(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, of: int = 0) -> None:
    """Ask that command lines end soundly, and that wrong values are refused by name."""
    monkeypatch.setenv("LEAKGAUGE_DATA", str(folder / "data"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    load_commands()

    def one(line: Line) -> None:
        ended = tried(*line.words, cwd=folder, measure=line.measure)
        if line.wrong:
            assert ended.returncode == REFUSED, line
            assert line.wrong in ended.stderr, (line, ended.stderr)

    examples(count, LINES, one, of=of)


def test_16_command_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 16)


@pytest.mark.slow
def test_500_command_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 500, of=1)
