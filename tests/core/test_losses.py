"""The log of each record's loss, against torch's losses and the standard library."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from leakgauge.core.losses import log_losses
from leakgauge.core.types import Task


def test_log_losses_of_any_loss() -> None:
    outputs, codes = torch.randn(5, 4).double(), torch.tensor([0, 3, 1, 2, 2])
    each = functional.cross_entropy(outputs, codes, reduction="none").log()
    for loss in (cross_entropy, nn.CrossEntropyLoss(), lambda o, t: cross_entropy(o, t)):
        torch.testing.assert_close(log_losses(loss, outputs, codes), each)
    numbers = torch.randn(5).double()
    wanted = (outputs[:, 0] - numbers).square().log()
    mse = Task(nn.Linear(1, 1), "mse").loss
    torch.testing.assert_close(log_losses(mse, outputs[:, :1], numbers), wanted)
    by_record = lambda o, t: (o[:, 0] - t).square()  # noqa: E731
    torch.testing.assert_close(log_losses(by_record, outputs[:, :1], numbers), wanted)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    one = [smooth(outputs[row : row + 1], codes[row : row + 1]).log() for row in range(5)]
    torch.testing.assert_close(log_losses(smooth, outputs, codes), torch.stack(one))


def test_log_losses_are_exact_far_below_rounding() -> None:
    """Against log1p of the standard library; below -36 the loss is exp(margin) to all digits."""
    margins = torch.tensor([-800.0, -60.0, -49.0, -30.0, -1.0, 0.0, 5.0, 60.0], dtype=torch.float64)
    outputs = torch.stack([torch.zeros(8).double(), margins], dim=1).requires_grad_()
    found = log_losses(cross_entropy, outputs, torch.zeros(8, dtype=torch.int64))
    wanted = [
        m if m < -36 else math.log(math.log1p(math.exp(-abs(m))) + max(m, 0.0))
        for m in margins.tolist()
    ]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)
    (slope,) = torch.autograd.grad(found.sum(), outputs)
    assert slope[:3, 1].tolist() == pytest.approx([1, 1, 1])
