"""A model with one output scores no classes, whatever the type of its labels."""

from pathlib import Path

import pytest

from leakgauge.results.measurements import read_measurements
from support.command import run

MODULE = """
import torch
from torch import nn
from torch.nn import functional as F
from leakgauge import Dataset, Task

def build(labels):
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(200, 6, generator=rng)
    y = x[:, 0] + torch.randn(200, generator=rng) > 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Flatten(0))
    def loss(outputs, targets):
        return F.binary_cross_entropy_with_logits(outputs, targets.float())
    return Task(model, loss), Dataset(x, y.to(labels))

def whole():
    return build(torch.int64)

def fractions():
    return build(torch.float32)
"""


@pytest.mark.parametrize("labels", ["whole", "fractions"])
def test_by_default_the_attack_on_classes_is_left_out(
    labels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "single.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    words = ("audit", "--ask", "membership", "--task", f"single:{labels}", "--rounds", 2)
    ended = run(*words, "--workers", 1, "--out", out, cwd=tmp_path)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "the model scores no classes, so the attack 'confidence' is left out" in said
    attacks = {one.adversary for one in read_measurements(out)}
    assert "loss" in attacks
    assert "confidence" not in attacks
    named = run(*words, "--adversary", "confidence", "--out", tmp_path / "named", cwd=tmp_path)
    assert named.returncode == 2
    assert "the model scores no classes, and only classes have a largest probability" in (
        named.stdout + named.stderr
    )
