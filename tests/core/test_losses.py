"""The log of each record's loss, against torch's losses and the standard library."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.losses import exact_loss, log_losses, record_losses
from leakgauge.core.reductions import refuse_summed
from leakgauge.core.rng import torch_stream
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


class Tempered(nn.CrossEntropyLoss):
    """It inherits from the cross entropy, and is another loss."""

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().forward(outputs / 2, targets) ** 2


@pytest.mark.parametrize(
    "loss",
    [
        Tempered(),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(ignore_index=2),
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0, 4.0]).double()),
    ],
)
def test_a_loss_is_known_as_cross_entropy_by_what_it_computes(loss: nn.Module) -> None:
    """Not by its class: the exact loss and its slopes are those of plain autograd."""
    outputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    codes = torch.tensor([0, 3, 1, 2, 2])
    found, looked_through, wanted = (
        (value, torch.autograd.grad(value, leaf)[0])
        for value, leaf in (
            (f(leaf, codes), leaf)
            for f in (exact_loss(loss), exact_loss(loss, codes), loss)
            for leaf in [outputs.clone().requires_grad_()]
        )
    )
    for one, same, other in zip(found, looked_through, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert torch.equal(same, one)


@pytest.mark.parametrize("ignored", [False, True])
def test_an_exact_loss_is_vectorised_where_no_target_is_ignored(*, ignored: bool) -> None:
    """A loop over records takes ten times as long."""
    outputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    codes = torch.tensor([0, 3, 1, 2, 2])
    loss = exact_loss(nn.CrossEntropyLoss(ignore_index=2 if ignored else -100), codes)
    each = record_losses(loss, outputs, codes, vectorised=False)
    if ignored:
        with pytest.raises(RuntimeError, match="data-dependent"):
            record_losses(loss, outputs, codes, vectorised=True)
    else:
        assert torch.equal(record_losses(loss, outputs, codes, vectorised=True), each)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["cross_entropy", "mse_loss", "l1_loss", "binary_cross_entropy_with_logits"]),
    st.sampled_from(["sum", "mean"]),
    st.integers(2, 9),
    st.integers(0, 10**6),
)
def test_a_sum_is_refused_and_a_mean_is_not(name, reduction, size, seed) -> None:
    rng = torch.Generator().manual_seed(seed)
    outputs, targets = (torch.rand(size, 3, generator=rng) for _ in range(2))
    if name == "cross_entropy":
        targets = targets.argmax(1)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return getattr(functional, name)(outputs, targets, reduction=reduction)

    if reduction == "mean":
        refuse_summed(loss, outputs, targets)
        return
    with pytest.raises(InputError, match=r'sum of their losses.*reduction="mean"') as caught:
        refuse_summed(loss, outputs, targets)
    assert "\n" not in str(caught.value)


def test_the_log_of_a_weighted_loss_is_that_of_each_record() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]), label_smoothing=0.1)
    outputs, targets = torch.randn(4, 2, generator=torch_stream(0, "x")), torch.tensor([0, 1, 1, 0])
    each = [loss(outputs[at : at + 1], targets[at : at + 1]) for at in range(4)]
    found = log_losses(loss, outputs, targets)
    assert torch.allclose(found.exp(), torch.stack(each).double(), rtol=1e-6)
    assert loss.weight.dtype == torch.float32
    whole = exact_loss(loss)(outputs, targets)
    assert whole == pytest.approx(float(loss(outputs, targets)), rel=1e-6)
