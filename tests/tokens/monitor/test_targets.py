"""Targets read from a loop's own passes, and the choice between records and the loop's pairs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from leakgauge import Monitor
from leakgauge.tokens.monitor.choosing import ChoosingJob
from leakgauge.tokens.monitor.job import CheckpointJob, StreamJob
from leakgauge.tokens.monitor.targets import read_targets
from support.loops import QUICK, batches, network

Loss = Callable[[Tensor, Tensor], Tensor]


def slopes_of(loss: Loss, outputs: Tensor, y: Tensor) -> Tensor:
    outputs = outputs.clone().requires_grad_()
    return torch.autograd.grad(loss(outputs, y), outputs)[0]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("factor", [1.0, 65536.0, 0.25])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_targets_of_a_cross_entropy_are_read_at_any_scale(reduction: str, factor: float) -> None:
    outputs, y = drawn(16, 5), torch.arange(16) % 5
    slopes = slopes_of(
        lambda out, y: factor * functional.cross_entropy(out, y, reduction=reduction), outputs, y
    )
    found = read_targets(outputs, slopes)
    assert found is not None
    assert found[0] == "cross_entropy"
    assert torch.equal(found[1], y)


@pytest.mark.parametrize("shape", [(16,), (16, 1), (16, 4)])
def test_yes_or_no_labels_are_read(shape: tuple[int, ...]) -> None:
    outputs, y = drawn(*shape), (drawn(*shape, seed=1) > 0).float()
    slopes = slopes_of(functional.binary_cross_entropy_with_logits, outputs, y)
    found = read_targets(outputs, slopes)
    assert found is not None
    assert found[0] == "bce"
    assert torch.equal(found[1], y)


@pytest.mark.parametrize(
    "loss",
    [
        lambda out, y: functional.cross_entropy(out, y, label_smoothing=0.1),
        lambda out, y: functional.cross_entropy(out, y, weight=torch.tensor([1.0, 5.0, 1.0])),
        lambda out, y: functional.mse_loss(out, functional.one_hot(y, 3).float()),
        lambda out, y: functional.cross_entropy(out, y) + 0.1 * out.square().mean(),
        lambda out, y: 0 * out.sum(),
        lambda out, y: -functional.cross_entropy(out, y),
    ],
)
def test_other_losses_are_not_read(loss: Loss) -> None:
    outputs, y = drawn(12, 3), torch.arange(12) % 3
    assert read_targets(outputs, slopes_of(loss, outputs, y)) is None


def chosen(
    model: nn.Module,
    change: Callable[[], None] = lambda: None,
    loss: Loss = functional.cross_entropy,
) -> ChoosingJob:
    """Return the job that a plain loop submits at its last step, and check its records."""
    jobs: list[ChoosingJob] = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Monitor(model, checkpoints=[130], gather=1, settings=QUICK, wait=0) as monitor:
        monitor._estimates._background.submit = lambda step, job: jobs.append(job)  # type: ignore[method-assign, assignment, return-value]
        for x, y in batches(131):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            change()
            optimizer.step()
    assert monitor.notes == []
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    return jobs[0]


def test_a_plain_loop_gives_the_records_and_targets_of_its_last_steps() -> None:
    job = chosen(network())
    assert isinstance(job.checkpoint, CheckpointJob)
    assert isinstance(job.stream, StreamJob)
    x, y = map(torch.cat, zip(*list(batches(131))[-80:], strict=True))
    for kept, seen in zip(job.checkpoint.records(), (x, y), strict=True):
        assert torch.equal(torch.from_numpy(kept), seen)
    assert job._checked() == ""


def test_a_gradient_that_is_not_the_records_is_told() -> None:
    def noisy() -> None:
        for leaf in model.parameters():
            assert leaf.grad is not None
            leaf.grad += torch.randn_like(leaf)

    def scaled() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)

    model = network()
    assert chosen(model, scaled)._checked() == ""
    assert "not that of the step's records alone" in chosen(model, noisy)._checked()


def test_the_pairs_of_the_loop_are_taken_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StreamJob, "__call__", lambda self: {"pairs": 131})
    job = chosen(network(), loss=lambda out, y: (out.mean(1) - y).square().mean())
    assert (
        job.checkpoint
        == "the passes of the loop do not show a cross-entropy of one tensor of records"
    )
    found = job()
    assert found["pairs"] == 131
    assert found["advice"].startswith("estimates compare batches of the loop, which finds less")


def test_a_record_of_two_epochs_counts_once() -> None:
    model = network()
    with Monitor(
        model, checkpoints=[60], pairs="checkpoint", loss="cross_entropy", settings=QUICK, wait=0
    ) as monitor:
        few = list(batches(25, size=4))
        for x, y in few * 2:
            monitor.step(x, y)
        job = monitor._estimates._checkpoint()
    assert len(job.records()[0]) == 200
    with pytest.raises(ValueError, match="there are 100 private records"):
        job()


@pytest.mark.parametrize(("figures", "pairs"), [({"records": 9}, "checkpoint"), ({}, "stream")])
def test_after_the_first_estimate_only_its_source_costs_time(
    figures: dict[str, int], pairs: str
) -> None:
    model = network()
    with Monitor(model, checkpoints=[130], gather=1, settings=QUICK, wait=0) as monitor:
        assert monitor._observer._watch.is_gathered(5)
        monitor._settle(figures)
        assert monitor._observer._watch.pairs == pairs
        assert bool(model._forward_hooks) == (pairs == "checkpoint")
    assert not model._forward_hooks
