"""A monitor of mixed precision: gradients of records and batches by plain autograd, unscaled."""

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional

from leakgauge import DPSGD, Monitor
from leakgauge.core.precision import relative_tolerance
from support.loops import batches, network
from tokens.monitor.test_cheap import flat, literal, record_gradients

HALVES = (torch.bfloat16, torch.float16)


def optimizer_of(model: nn.Module, *, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1, fused=fused)


def loop(model: nn.Module, scaler: GradScaler, *, steps: int, fused: bool = False) -> None:
    optimizer = optimizer_of(model, fused=fused)
    for x, y in batches(steps, size=12):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("dtype", HALVES)
def test_the_cheap_measure_is_that_of_gradients_under_autocast(
    dtype: torch.dtype, inside: bool
) -> None:
    """Also where the optimizer steps inside the block of autocast."""
    model = network()
    ((x, y),) = batches(1, size=12)
    with torch.autocast("cpu", dtype=dtype):
        rows = [flat(one) for one in record_gradients(model, x, y)]
    optimizer = optimizer_of(model, fused=False)
    with Monitor(model, checkpoints=0) as monitor:
        with torch.autocast("cpu", dtype=dtype):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        with torch.autocast("cpu", dtype=dtype, enabled=inside):
            optimizer.step()
    assert not monitor.notes
    expected = literal(rows, x)
    assert monitor.records[0]["cheap"] == pytest.approx(expected, abs=relative_tolerance(dtype, 0))


@pytest.mark.parametrize("fused", [False, True])
def test_gradients_of_a_scaled_loss_count_without_the_scale(fused: bool) -> None:
    """Those of records meet the same bound as in a loop without a scaler, those of batches too."""
    ((x, y),) = batches(1, size=12)
    each = record_gradients(network(), x, y)
    clip = float(torch.stack([flat(one).norm() for one in each]).median())  # half are shorter
    total: dict[str, Tensor] = {}
    for grads in each:
        factor = (clip / flat(grads).norm()).clamp(max=1)
        for name, leaf in grads.items():
            total[name] = total.get(name, 0) + factor * leaf / 12  # type: ignore[assignment]
    plain = network()
    functional.cross_entropy(plain(x), y).backward()
    whole = {name: leaf.grad for name, leaf in plain.named_parameters() if leaf.grad is not None}
    for defense, grads in ((DPSGD(clip=clip, noise=0.0), total), (None, whole)):
        model = network()
        monitor = Monitor(model, checkpoints=[10], gather=1, defense=defense, width=10**4)
        with monitor:
            loop(model, GradScaler("cpu"), steps=1, fused=fused)
            kept = monitor._observer.reading.split(monitor._estimates._kept_gradients.rows())
        expected = flat(grads, "5.")
        found = kept["5"][0].sort().values
        assert torch.allclose(
            found, expected.sort().values, atol=0.01 * float(expected.abs().max())
        )


@pytest.mark.parametrize("fused", [False, True])
def test_trained_weights_are_those_without_it_and_the_scaler_is_left_as_it_was(
    fused: bool,
) -> None:
    before = GradScaler.scale
    watched, other = network(), network()
    scaler = GradScaler("cpu")
    defense = DPSGD(clip=1.0, noise=0.1)
    with (
        Monitor(watched, every=2, gather=1, defense=defense) as monitor,
        Monitor(watched, every=2, checkpoints=0),
    ):
        loop(watched, scaler, steps=6, fused=fused)
    loop(other, GradScaler("cpu"), steps=6, fused=fused)
    assert [one["step"] for one in monitor.records] == [0, 2, 4]
    assert GradScaler.scale is before
    for one, two in zip(watched.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_scaler_that_is_off_scales_nothing() -> None:
    model = network()
    with Monitor(model, every=1, checkpoints=0) as monitor:
        loop(model, GradScaler("cpu", enabled=False), steps=2)
    assert [one["step"] for one in monitor.records] == [0, 1]
