"""Each question runs on a GPU by the code that runs on a CPU."""

import os
from pathlib import Path

import pytest
import torch

from support import command

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

LITTLE = {
    "attributes": (
        *("audit", "randhie", "--ask", "property", "--ask", "attribute", "--trials", "200"),
        *("--set", "inference.rounds=1", "--private", "2000"),
    ),
    "membership": (
        *("audit", "randhie", "--ask", "membership"),
        *("--set", "membership.rounds=2", "--set", "membership.size=300"),
    ),
    "layers": ("audit", "randhie", "--ask", "layers", "--rounds", "2"),
    "guarantee": (
        *("guarantee", "randhie", "--attribute", "hlthp", "--clip", "1", "--noise", "1"),
        *("--trials", "200"),
    ),
    "reconstruction": ("invert", "randhie", "--method", "exact-batch", "--batch-size", "8"),
    "search": ("invert", "randhie", "--method", "tableak", "--batch-size", "2", "--images", "2"),
}


@pytest.mark.parametrize("question", LITTLE)
def test_a_question_runs_on_a_gpu(question: str, tmp_path: Path) -> None:
    runs_on_gpu(*LITTLE[question], folder=tmp_path)


@pytest.mark.skipif("LEAKGAUGE_DATA" not in os.environ, reason="there are no images")
@pytest.mark.parametrize(
    "more", [("--images", "2", "--iterations", "320"), ("--server", "robbing")]
)
def test_images_are_rebuilt_on_a_gpu(more: tuple[str, ...], tmp_path: Path) -> None:
    """A search of 320 iterations is recorded and becomes a CUDA graph."""
    runs_on_gpu("invert", "cifar10", *more, folder=tmp_path)


def runs_on_gpu(*words: str, folder: Path) -> None:
    ended = command.run(*words, "--device", "cuda", "--out", folder / "run")
    assert ended.returncode == 0, ended.stderr
    assert (folder / "run" / "report.html").is_file()
