"""Checkpoints, updates and folders of kept updates: other tensors, other files, damage, code.

What is accepted must be the weights that were written; code in a pickle must not run.
"""

import os
import pickle
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save
from torch import Tensor

from leakgauge.cli.stopping import REFUSED
from leakgauge.models.perceptron import mlp
from leakgauge.models.weights import load_weights
from support import bound
from support.fuzz import examples, junk, refusal, tried

State = dict[str, Tensor]


class Code:
    """A pickle of this writes a file when it is read as one."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("code-ran",)


@dataclass(frozen=True)
class Change:
    """A drawn change of the right weights.

    Attributes:
        way: what is changed.
        at: number of the tensor that is changed.
        form: how the file is written.
        cut: what is done to its bytes: nothing, or where they are cut, changed or doubled.
        word: a word for names and keys.
    """

    way: str
    at: int
    form: str
    cut: tuple[str, float]
    word: str


def _one(change: Callable[[Tensor], Any]) -> Callable[[State, Change], Any]:
    def changed(state: State, how: Change) -> Any:
        name = list(state)[how.at % len(state)]
        return {**state, name: change(state[name])}

    return changed


def _filled(value: float) -> Callable[[Tensor], Tensor]:
    return lambda leaf: torch.cat([torch.full_like(leaf.flatten()[:1], value), leaf.flatten()[1:]]).view_as(leaf)  # fmt: skip # noqa: E501


def _without(state: State, how: Change) -> State:
    gone = list(state)[how.at % len(state)]
    return {name: leaf for name, leaf in state.items() if name != gone}


RIGHT: Mapping[str, Callable[[State, Change], Any]] = {
    "nothing": lambda state, how: state,
    "order": lambda state, how: OrderedDict(reversed(state.items())),
    "double": _one(lambda leaf: leaf.double()),
    "under a key": lambda state, how: {"state_dict": state, "epoch": 3},
    "wrapped": lambda state, how: {f"module.{name}": leaf for name, leaf in state.items()},
    "strides": _one(lambda leaf: leaf.t().contiguous().t() if leaf.dim() == 2 else leaf),
    "parameters": _one(lambda leaf: torch.nn.Parameter(leaf)),
}
"""Changes that leave the weights as they are."""

WRONG: Mapping[str, Callable[[State, Change], Any]] = {
    "missing": _without,
    "more": lambda state, how: {**state, f"more{how.word}": torch.ones(2)},
    "shape": _one(lambda leaf: leaf[..., :-1]),
    "scalar": _one(lambda leaf: torch.tensor(1.0)),
    "empty": _one(lambda leaf: leaf[:0]),
    "more dimensions": _one(lambda leaf: leaf[None]),
    "nan": _one(_filled(float("nan"))),
    "inf": _one(_filled(float("inf"))),
    "whole numbers": _one(lambda leaf: leaf.to(torch.int64)),
    "truths": _one(lambda leaf: leaf > 0),
    "complex": _one(lambda leaf: leaf.to(torch.complex64)),
    "bytes": _one(lambda leaf: leaf.to(torch.uint8)),
    "sparse": _one(lambda leaf: leaf.to_sparse()),
    "meta": _one(lambda leaf: leaf.to("meta")),
    "quantised": _one(lambda leaf: torch.quantize_per_tensor(leaf, 0.1, 0, torch.qint8)),
    "a list": lambda state, how: [state, state],
    "a tensor": lambda state, how: torch.ones(3),
    "nothing in it": lambda state, how: {},
    "numbers as names": lambda state, how: dict(enumerate(state.values())),
    "other names": lambda state, how: {f"{how.word}{name}x": leaf for name, leaf in state.items()},
    "two copies": lambda state, how: {
        "net": state, "ema": {name: leaf + 1 for name, leaf in state.items()}
    },
    "arrays": lambda state, how: {name: leaf.numpy() for name, leaf in state.items()},
    "numbers": _one(lambda leaf: leaf.tolist()),
    "text": _one(lambda leaf: "weights"),
    "deep": lambda state, how: {"a": {"b": {"c": {"d": {"e": {"f": state}}}}}},
    "code": lambda state, how: {**state, "code": Code()},
    "code alone": lambda state, how: Code(),
    "a module": lambda state, how: torch.nn.Linear(2, 2),
}  # fmt: skip
"""Changes after which the file does not hold the model's weights."""


def as_bytes(made: Any, form: str) -> bytes:
    """Return a file of weights; safetensors where it can hold them."""
    path = Path("made")
    if form == "safetensors":
        try:
            return save({str(name): leaf.clone().contiguous() for name, leaf in made.items()})
        except (AttributeError, TypeError, ValueError, RuntimeError, KeyError, NotImplementedError):
            form = "torch"
    if form == "pickle":
        return pickle.dumps(made)
    torch.save(made, path, _use_new_zipfile_serialization=form == "torch")
    return path.read_bytes()


def damaged(content: bytes, cut: tuple[str, float]) -> bytes:
    way, share = cut
    at = int(share * len(content))
    if way == "cut":
        return content[:at]
    if way == "flip" and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ (1 + at % 255)]) + content[at + 1 :]
    return content * 2 if way == "double" else content


CUTS = st.tuples(st.sampled_from(("",) * 5 + ("cut", "flip", "double")), st.floats(0, 1))
FORMS = st.sampled_from(("torch", "torch", "safetensors", "safetensors", "old", "pickle"))
WAYS = st.booleans().flatmap(lambda right: st.sampled_from([*RIGHT] if right else [*WRONG]))
CHANGES = st.builds(Change, WAYS, st.integers(0, 9), FORMS, CUTS, junk)
"""Changes of checkpoints."""


@dataclass(frozen=True)
class Kept:
    """A drawn change of a folder of kept updates.

    Attributes:
        way: what happens to a file of it.
        at: number of the file.
        share: where in the file.
    """

    way: str
    at: int
    share: float


KEPT = st.builds(
    Kept,
    st.sampled_from(("cut", "flip", "double", "gone", "folder", "loop", "swap", "more", "empty",
                     "rename", "unreadable")),
    st.integers(0, 9),
    st.floats(0, 1),
)  # fmt: skip
"""Changes of folders of kept updates."""

UPDATES = st.builds(lambda cut, key, value: ("update", cut, key, value), CUTS, st.sampled_from((
    "lr", "steps", "batch_size", "records", "names", "kind", "optimizer", "rates", "format", "x")),
    junk | st.sampled_from(("1", "-1", "0", "1e30", str(10**17), "[]", "[[1]]", "{}", "weights",
                            "sgd:momentum=2", "builtins:print", "[1e999]", "nan")))  # fmt: skip
"""Changes of an update's file: bytes, and a figure of its header."""

FILES = st.one_of(CHANGES, CHANGES.map(lambda one: one), KEPT, UPDATES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs")
    bound.write_inputs(made)
    return made


def of_checkpoint(folder: Path, how: Change) -> None:
    right: State = load_file(folder / "weights.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, which drops its quantised tensors
        made = {**RIGHT, **WRONG}[how.way](dict(right), how)
        content = damaged(as_bytes(made, how.form), how.cut)
    path = folder / "drawn.pt"
    path.write_bytes(content)
    model = mlp(6, 2, (8,), generator=torch.Generator())
    said = refusal(lambda: load_weights(model, path))
    accepted = not said
    if accepted:
        assert how.way in RIGHT or how.cut[0], "wrong weights were accepted"
        if not how.cut[0]:
            state = model.state_dict()
            assert all(torch.equal(state[name], leaf) for name, leaf in right.items())
    # Only safetensors and torch's own files without code are read.
    assert accepted or how.way in WRONG or how.cut[0] or how.form == "pickle", said
    words = ("invert", "people.csv", "--label", "income", "--method", "exact", "--hidden", 8,
             "--drop", "user", "--weights", "drawn.pt")  # fmt: skip
    ended = tried(*words, cwd=folder, measure=False)
    assert accepted or ended.returncode == REFUSED, ended
    words = ("membership", "drawn.pt", "--task", "bound_task:build", "--members", "in.txt",
             "--non-members", "out.txt", "--adversary", "loss")  # fmt: skip
    ended = tried(*words, cwd=folder, measure=not how.at)
    assert accepted or ended.returncode == REFUSED, ended
    assert not (folder / "code-ran").exists(), "code in a pickle ran"


def of_update(folder: Path, drawn: tuple[Any, ...]) -> None:
    from safetensors import safe_open

    _, cut, key, value = drawn
    with safe_open(folder / "update.safetensors", framework="pt") as file:
        header = file.metadata()
    whole = load_file(folder / "update.safetensors")
    text = value.encode("utf-8", "replace").decode()
    content = save(whole, {**header, key: text})
    (folder / "drawn.safetensors").write_bytes(damaged(content, cut))
    words = ("invert", "--update", "drawn.safetensors", "--task", "bound_task:build")
    tried(*words, "--iterations", 2, cwd=folder, measure=not cut[0] and key == "x")


def of_kept(folder: Path, how: Kept) -> None:
    here = folder / "changed"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(folder / "kept", here)
    files = sorted(one for one in here.rglob("[!.]*") if one.is_file())
    path, other = files[how.at % len(files)], files[(how.at + 1) % len(files)]
    content = path.read_bytes()
    new = damaged(content, (how.way, how.share))
    path.write_bytes(new)
    changed = new != content
    if how.way in ("gone", "folder", "loop"):
        path.unlink()
        changed = True
    if how.way == "folder":
        path.mkdir()
    elif how.way == "loop":
        path.symlink_to(path.name)
    elif how.way == "swap":
        path.write_bytes(other.read_bytes())
        changed = path.read_bytes() != content
    elif how.way == "empty":
        path.write_bytes(b"")
        changed = True
    elif how.way == "rename":
        path.rename(path.with_name(f"0{path.name}"))
    elif how.way == "more":
        path.with_name("more.yaml").write_bytes(content)
    elif how.way == "unreadable":
        path.write_bytes(bytes(255 - one for one in content))
        changed = True
    ended = tried("federation", "changed", "--task", "bound_task:build", "--iterations", 2,
                  cwd=folder, measure=False)  # fmt: skip
    gone = how.way in ("gone", "folder") and path.suffix == ".yaml"  # another client is left
    if changed and not gone:
        assert ended.returncode == REFUSED, (how, path)


def of_file(folder: Path, drawn: Any) -> None:
    """Ask that one drawn file or folder is read as it is, or refused."""
    if isinstance(drawn, Change):
        of_checkpoint(folder, drawn)
    elif isinstance(drawn, Kept):
        of_kept(folder, drawn)
    else:
        of_update(folder, drawn)


def end_soundly(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int, of: int = 0) -> None:
    """Ask that drawn files and folders are read as they are, or refused."""
    monkeypatch.setenv("LEAKGAUGE_DATA", str(folder / "data"))
    monkeypatch.chdir(folder)
    examples(count, FILES, lambda one: of_file(folder, one), of=of)


@pytest.mark.parametrize("form", ["torch", "old", "pickle"])
@pytest.mark.parametrize("way", ["code", "code alone"])
def test_code_in_a_checkpoint_never_runs(
    folder: Path, way: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    of_checkpoint(folder, Change(way, 0, form, ("", 0), ""))


def test_8_checkpoints_and_kept_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 8)


@pytest.mark.slow
def test_100_checkpoints_and_kept_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_soundly(folder, monkeypatch, 100, of=1)
