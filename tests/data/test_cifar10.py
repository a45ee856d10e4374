"""All of CIFAR-10: the script that writes the file, and the datasets that read it."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from leakgauge.core.checks import InputError
from leakgauge.data import named, open_data

SCRIPT = Path(__file__).parents[2] / "experiments" / "data" / "cifar10.py"
PARTS = {"train": 10, "test": 3}


@pytest.fixture
def images() -> dict[str, np.ndarray]:
    drawn = np.random.default_rng(0)
    return {
        part: drawn.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        for part, count in PARTS.items()
    }


@pytest.fixture
def folder(images: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder with the file that the script wrote from a small package."""
    package = tmp_path / "package"
    package.mkdir()
    files = [f"data_batch_{number}.png" for number in range(1, 6)]
    for file, rows in zip(files, np.split(images["train"], 5), strict=True):
        Image.fromarray(rows.reshape(len(rows), 1024, 3)).save(package / file)
    Image.fromarray(images["test"].reshape(-1, 1024, 3)).save(package / "test_batch.png")
    for part, count in PARTS.items():
        (package / f"{part}_lables.json").write_text(json.dumps(list(range(count))))
    monkeypatch.setattr(sys, "argv", [SCRIPT.name, str(package), str(tmp_path / "data")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    monkeypatch.setenv(named.DATA_VARIABLE, str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.mark.parametrize("part", PARTS)
def test_the_images_of_the_package_are_read_in_order(
    part: str, folder: Path, images: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named, "_CIFAR10_SIZES", PARTS)
    source = open_data(f"cifar10-full-{part}")
    assert source.pixels is not None
    assert (source.pixels.transpose(0, 2, 3, 1) == images[part]).all()
    assert source.frame["y"].tolist() == list(range(PARTS[part]))
    assert source.roles is not None
    assert source.roles.label == "y"


@pytest.mark.parametrize(("part", "whole"), [("train", "50,000"), ("test", "10,000")])
def test_a_part_of_the_images_is_not_called_all_of_them(
    part: str, whole: str, folder: Path
) -> None:
    with pytest.raises(InputError, match=f"holds {PARTS[part]} images instead of all {whole}"):
        open_data(f"cifar10-full-{part}")
