"""Checkpoints of an unfinished cell are kept whole and read back equal."""

from pathlib import Path

import numpy as np
import pytest
import torch

from leakgauge.results.measurements import Run
from leakgauge.runs.work import WorkFolder

ARRAYS = {"a b/c": np.arange(3.0), "n": np.array([[1, 2]])}
TENSORS = {"w": torch.eye(2), "b": torch.zeros(3, dtype=torch.float64)}


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path / "work")
    assert folder.arrays("x/one") is None
    assert folder.tensors("x/state", like=TENSORS) is None
    folder.keep_arrays("x/one", ARRAYS, {"seconds": 1.5})
    arrays, about = folder.arrays("x/one")
    assert about == {"seconds": 1.5}
    assert {name: one.tolist() for name, one in arrays.items()} == {
        name: one.tolist() for name, one in ARRAYS.items()
    }
    folder.keep_tensors("x/state", TENSORS)
    read = folder.tensors("x/state", like={"b": TENSORS["b"], "w": TENSORS["w"]})
    assert list(read) == ["b", "w"]
    assert all(torch.equal(read[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize("content", [b"", b"nonsense"])
def test_a_damaged_checkpoint_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    folder = WorkFolder(tmp_path)
    folder.keep_arrays("one", ARRAYS, {})
    folder.keep_tensors("state", TENSORS)
    for path in (tmp_path / "checkpoints").iterdir():
        path.write_bytes(content)
    assert folder.arrays("one") is None
    assert folder.tensors("state", like=TENSORS) is None


def test_names_may_hold_anything(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path)
    folder.keep_arrays("property, prune:rate=0.9 $x/step-1", {}, {"x": 1})
    assert folder.arrays("property, prune:rate=0.9 $x/step-1") == ({}, {"x": 1})


def test_names_may_be_long_and_differ_at_their_end(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path)
    long = "+".join(f"layer{number}.weight" for number in range(200))
    for end in "ab":
        folder.keep_arrays(f"{long}{end}/{long}{end}", {"end": np.array(ord(end))}, {})
    for end in "ab":
        kept = folder.arrays(f"{long}{end}/{long}{end}")
        assert kept is not None
        assert kept[0]["end"] == ord(end)


def test_checkpoints_of_another_description_are_removed(tmp_path: Path) -> None:
    folder = WorkFolder(tmp_path)
    run = Run("", {"seed": 0}, {"model": "A"})
    folder.guard(run)
    folder.keep_arrays("one", ARRAYS, {})
    folder.guard(run)
    assert folder.arrays("one") is not None
    folder.guard(Run("", {"seed": 0}, {"model": "B"}))
    assert folder.arrays("one") is None
