"""Data are read once per process, and again if a name refers to other data."""

import os
from pathlib import Path

import pytest

from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.sources import source_of
from support.tables import frame


def written(folder: Path, rows: int) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "people.csv"
    frame(rows).to_csv(path, index=False)
    return path


def opened(name: str) -> int:
    return len(source_of(InferenceSpec(data=name)).frame)


def test_a_name_in_another_folder_is_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, rows in (("a", 40), ("b", 50)):
        monkeypatch.chdir(written(tmp_path / folder, rows).parent)
        assert opened("people.csv") == rows


def test_a_file_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path, 40)
    assert opened(str(path)) == 40
    written(tmp_path, 50)
    os.utime(path, ns=(1, 1))  # the clock of a file system may be coarse
    assert opened(str(path)) == 50


def test_unchanged_data_are_read_once(tmp_path: Path) -> None:
    spec = InferenceSpec(data=str(written(tmp_path, 40)))
    assert source_of(spec) is source_of(spec)
