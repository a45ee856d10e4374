"""Data are read once per process, and again if a name refers to other data."""

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from leakgauge import Dataset, InputError, Task
from leakgauge.inference.spec import InferenceSpec
from leakgauge.runs.sources import source_of, task_source
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


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss])
def test_a_users_loss_that_is_a_sum_is_refused(loss: type[nn.Module]) -> None:
    """A sum trains B times as fast as the settings say, and its figures are others."""
    x, y = torch.randn(12, 5), torch.rand(12, 3)
    data = Dataset(x, y.argmax(1) if loss is nn.CrossEntropyLoss else y)
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    assert task_source(Task(model, loss()), data).task is not None
    assert model.training
    with pytest.raises(InputError, match=r"the loss of 8 records is the sum of their losses"):
        task_source(Task(model, loss(reduction="sum")), data)
