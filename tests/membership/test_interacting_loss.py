"""A loss in which records interact says nothing of a single one, and no attack reads it."""

from pathlib import Path

import pytest

from leakgauge.results.measurements import read_measurements
from support.command import run

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F
from leakgauge import Task
from leakgauge.data import from_arrays

def build():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(300, 6, generator=rng)
    y = (x[:, 0] + torch.randn(300, generator=rng) > 0).long()

    def loss(scores, labels):
        apart = scores[:, None, 0] - scores[None, :, 0]
        pairs = ((labels[:, None] == 1) & (labels[None] == 0)).float()
        return (F.softplus(-apart) * pairs).sum() / pairs.sum().clamp(min=1)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    return Task(model, loss), from_arrays(x.numpy(), y.numpy(), {})
"""


def test_attacks_on_such_a_loss_are_refused_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranking.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("audit", "--ask", "membership", "--task", "ranking:build", "--rounds", 3)
    attacks = ("--adversary", "loss", "--adversary", "gradients", "--adversary", "label-loss")
    ended = run(*words, *attacks, "--workers", 1, "--out", tmp_path / "out", cwd=tmp_path)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 2, said
    for name in ("loss", "gradients"):
        assert f"refused: {name}: it sees nothing, since the loss of every single record" in said
    measured = read_measurements(tmp_path / "out")
    assert {one.adversary for one in measured if one.metric == "auroc"} == {"label-loss"}
