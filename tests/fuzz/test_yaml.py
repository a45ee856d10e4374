"""YAML files with values of other types and bounds: grids, declarations of a release, kept updates.

Grids with wrong values run to the end, where a cell may refuse; others are stopped before they
measure.
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from leakgauge.catalog import questions
from leakgauge.cli.stopping import REFUSED
from leakgauge.core.files import read_yaml, write_sealed, write_yaml
from leakgauge.evidence.context import Context
from leakgauge.runs.setting import Declared
from leakgauge.runs.spec import declared
from support import bound
from support.drawn import inside, outside
from support.fuzz import SCRIPTS, SIGNS, examples, junk, tried

GRID = {
    "name": "small",
    "about": "a grid",
    "grids": [{"data": "people.csv", "label": "income", "secret": "sex", "rounds": 1,
               "trials": 60, "batch_size": 4, "adversary": "logistic", "shadow": 20}],
    "sizes": {"small": {"seed": 1}},
    "paper": [{"where": {"batch_size": 4}, "round": 1, "metric": "auroc", "value": 0.7}],
}  # fmt: skip
RECORDS = {"ask": "reconstruction", "data": "people.csv", "label": "income", "images": 2,
           "drop": [["user"]], "hidden": [[8]], "method": "exact"}  # fmt: skip
NETS = {"ask": "membership", "data": "people.csv", "label": "income", "rounds": 1,
        "adversary": "loss"}  # fmt: skip
CLAIM = {"ask": "guarantee", "data": "people.csv", "label": "income", "attribute": "sex",
         "clip": 1.0, "noise": 1.0, "trials": 60, "canary": "random"}  # fmt: skip
GRIDS = {"inference": GRID["grids"][0], "reconstruction": RECORDS, "membership": NETS,
         "guarantee": CLAIM}  # fmt: skip

scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | junk | st.dates()
    | st.sampled_from([0, -1, 1, 10**17, 1e308, 1e-320, "", "1e5", "0x1f", "none", "no"])
)  # fmt: skip
plain = st.one_of(scalars, scalars, scalars, st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(SCRIPTS + "ab", max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=6,
))  # fmt: skip
"""Any value of YAML."""


@dataclass(frozen=True)
class Written:
    """A drawn file.

    Attributes:
        kind: ``grid``, ``context`` or ``kept``.
        content: the values, or the text or bytes as they are written.
        wrong: words of which a refusal must have one; empty where it may be accepted.
    """

    kind: str
    content: Any
    wrong: tuple[str, ...] = ()


@st.composite
def grids(draw: st.DrawFn) -> Written:
    """Draw a grid with one changed value."""
    name = draw(st.sampled_from([*GRIDS]))
    known = declared(questions()[name].Spec)
    grid = copy.deepcopy({**GRID, "grids": [GRIDS[name]]})
    if name != "inference":
        grid.pop("paper")
    cell: dict[str, Any] = grid["grids"][0]  # type: ignore[assignment, index]
    way = draw(st.sampled_from(("inside", "outside", "setting", "top", "size", "paper", "key")))
    one: Declared = draw(st.sampled_from([*known.values()]))
    if way == "outside":
        one = draw(st.sampled_from([each for each in known.values() if outside(each)]))
        item = draw(st.sampled_from(outside(one)))
        several = one.kind is tuple and not one.setting.cells
        cell[one.name] = [[item]] if several else item
        return Written("grid", grid, (one.name, one.flag))
    if way == "inside":
        item = draw(inside(one))
        cell[one.name] = [[item]] if one.kind is tuple and not one.setting.cells else item
    elif way == "setting":
        cell[one.name] = draw(plain)
    elif way == "top":
        grid[draw(st.sampled_from([*grid]))] = draw(plain)
    elif way == "size":
        grid["sizes"] = {draw(junk): {one.name: draw(plain)}}
    elif way == "paper":
        row = copy.deepcopy(GRID["paper"][0])  # type: ignore[index]
        row[draw(st.sampled_from(["where", "round", "metric", "value", "note", "knowledge"]))] = (
            draw(plain)
        )
        grid["paper"] = [row]
    else:
        key = draw(junk | st.sampled_from(["Rounds", "round", "batch-size", "sead"]))
        cell[key] = 1
        return Written("grid", grid, ("unknown key", "is not YAML"))
    return Written("grid", grid)


@st.composite
def contexts(draw: st.DrawFn) -> Written:
    """Draw declarations of a release."""
    known = [*Context.model_fields]
    names = draw(st.lists(st.sampled_from(known), max_size=3, unique=True))
    values: dict[Any, Any] = {name: draw(plain) for name in names}
    wrong = [
        name
        for name, value in values.items()
        if any(
            isinstance(part, bool | list | Mapping)
            for part in (value if isinstance(value, list) else [value])
        )
    ]
    if draw(st.integers(0, 3)) == 0:
        key = draw(st.text(SCRIPTS + "ab", min_size=1, max_size=5) | st.integers())
        values[key] = "x"
        return Written("context", values, ("unknown key", "is no text"))
    return Written("context", values, tuple(wrong and [*wrong, "is no text"]))


PLACES = ("round", "client", "source", "seen", "kind", "model", "update", "examples", "metrics",
          "config", "training", "training.lr", "training.epochs", "training.momentum",
          "training.batch_size", "model.sha256", "model.file", "update.bytes", "metrics.loss",
          "config.lr", "more", "format")  # fmt: skip


@st.composite
def kept(draw: st.DrawFn) -> Written:
    """Draw a change of one field of a kept update."""
    return Written("kept", (draw(st.sampled_from(PLACES)), draw(plain)))


@st.composite
def texts(draw: st.DrawFn) -> Written:
    """Draw a text, or the text of a right file with a part that is cut, doubled or replaced."""
    kind = draw(st.sampled_from(("grid", "context", "kept")))
    if draw(st.booleans()):
        sign = st.sampled_from("a1:- [{]}&*!|>'\"#\n\t?,<.~%@\\é٣\ud800\x00\x85\u2028")
        text = draw(st.text(sign, max_size=40))
        return Written(kind, text.encode("utf-8", "surrogatepass"))
    whole = yaml.safe_dump(GRID if kind == "grid" else {"system": "a", "owner": ["b", "c"]})
    at, end = sorted(draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    part = draw(st.sampled_from(("", whole[at:end] * 2, "\t", "&a *a", "!!python/name:os.system "))
                | junk | st.text(SCRIPTS + SIGNS, max_size=5))  # fmt: skip
    return Written(kind, (whole[:at] + part + whole[end:]).encode("utf-8", "surrogateescape"))


FILES = st.one_of(grids(), grids(), contexts(), kept(), texts())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    bound.write_inputs(made)
    words = [(f"--{key.replace('_', '-')}", value) for key, value in GRIDS["inference"].items()]
    given = [part for pair in words[1:] for part in pair]
    assert tried("audit", "people.csv", *given, "--out", "finished", cwd=made).returncode == 0
    return made


def written(path: Path, content: Any) -> None:
    """Write values or bytes; values that YAML cannot write are written as JSON with escapes."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    try:
        path.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    except UnicodeEncodeError:
        path.write_text(yaml.safe_dump(content), encoding="utf-8")


def read_by_yaml(path: Path) -> Any:
    """Return what the file holds as texts, by YAML's own simplest reader."""
    return yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)


def of_grid(folder: Path, one: Written) -> None:
    written(folder / "x.yaml", one.content)
    words = ("run", "x.yaml", "--out", f"out-{abs(hash(repr(one)))}")
    ended = tried(*words, cwd=folder, measure=bool(one.wrong))
    if one.wrong:
        assert ended.returncode == REFUSED, ended
        assert any(word in ended.stderr for word in one.wrong), ended.stderr


def of_context(folder: Path, one: Written) -> None:
    path, card = folder / "context.yaml", folder / "card" / "audit-card.json"
    written(path, one.content)
    ended = tried("card", "finished", "--context", "context.yaml", "--out", "card", cwd=folder)
    if ended.returncode == REFUSED:
        assert not one.wrong or any(word in ended.stderr for word in one.wrong), ended.stderr
        return
    assert not one.wrong, ended
    declared_ = json.loads(card.read_text(encoding="utf-8"))["context"]
    for name, value in (read_by_yaml(path) or {}).items():
        parts = value if isinstance(value, list) else [value]
        for part in parts:  # nothing that was declared is lost
            text = " ".join(str(part).split())
            assert text in declared_[name] or text in ("", "~", "null", "Null", "NULL"), name


def of_kept(folder: Path, one: Written) -> None:
    (about,) = (folder / "kept" / "rounds" / "0001").glob("1.yaml")
    before = about.read_bytes()
    try:
        if isinstance(one.content, bytes):
            write_sealed(about, one.content)
            names: tuple[str, ...] = ("1.yaml",)
        else:
            place, value = one.content
            values = read_yaml(about)
            *outer, last = place.split(".")
            (values[outer[0]] if outer else values)[last] = value
            names = (place, last, about.name)
            try:
                write_yaml(about, values)
            except (TypeError, ValueError):  # dates, and halves of characters, are no JSON
                write_sealed(about, yaml.safe_dump(values).encode())
        ended = tried("federation", "kept", "--task", "bound_task:build", "--iterations", 2,
                      cwd=folder, measure=False)  # fmt: skip
        if ended.returncode == REFUSED:
            said = ended.stderr.replace("_", " ")
            assert any(
                word in said for word in (*names, "learning rate", "local steps", "twice")
            ), said
    finally:
        about.write_bytes(before)


READERS = {"grid": of_grid, "context": of_context, "kept": of_kept}


def end_soundly(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, of: int = 0) -> None:
    """Ask that commands on drawn files end soundly, and that wrong values are refused by name."""
    monkeypatch.setenv("LEAKGAUGE_DATA", str(folder / "data"))
    examples(count, FILES, lambda one: READERS[one.kind](folder, one), of=of)


def test_12_yaml_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 12)


@pytest.mark.slow
def test_150_yaml_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 150, of=1)
