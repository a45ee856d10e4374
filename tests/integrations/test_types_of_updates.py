"""Kept arrays of other types than the model's are read in the model's types."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.types import Task
from leakgauge.integrations.kept import Exchange, Keeper
from leakgauge.integrations.kept_reading import KeptUpdate, read_kept
from leakgauge.integrations.training_settings import LocalTraining

LR = 0.1


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Sigmoid(), nn.Linear(8, 3)).eval()


def step(net: nn.Module) -> dict[str, torch.Tensor]:
    """The gradient of eight records, by plain autograd in float64."""
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)).double()
    copied = net.double()
    loss = cross_entropy(copied(x), torch.arange(8) % 3)
    names, leaves = zip(*copied.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))


def kept(folder: Path, received: torch.dtype, sent: torch.dtype) -> tuple[KeptUpdate, dict]:
    net = model()
    start = {name: leaf.clone() for name, leaf in net.state_dict().items()}
    gradient = step(net)
    before = {
        n: leaf.to(received) if leaf.is_floating_point() else leaf for n, leaf in start.items()
    }
    after = {
        n: (leaf.double() - LR * gradient[n]).to(sent) if n in gradient else before[n]
        for n, leaf in before.items()
    }
    Keeper(folder, training=LocalTraining(lr=LR, steps=1)).keep(Exchange(1, "0", before, after))
    return read_kept(folder).updates[0], gradient


@pytest.mark.parametrize("received", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sent", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_updates_are_read_in_the_models_types(
    tmp_path: Path, received: torch.dtype, sent: torch.dtype
) -> None:
    one, gradient = kept(tmp_path, received, sent)
    update = one.update(model())
    for part in (update.before, update.values, update.held, update.buffers):
        assert {leaf.dtype for leaf in part.values()} <= {torch.float32, torch.int64}
    found = update.as_gradient()
    wanted = torch.cat([gradient[name].flatten() for name in found])
    error = float((torch.cat([leaf.flatten() for leaf in found.values()]) - wanted).norm())
    error /= float(wanted.norm())
    rounded = sent in (torch.float16, torch.bfloat16)
    assert error < 1e-5 or rounded
    if rounded:
        assert 0.4 * error < update.validity().rounding < 2.5 * error


def test_a_model_of_the_updates_type_takes_it(tmp_path: Path) -> None:
    one, _ = kept(tmp_path, torch.float64, torch.float64)
    update = one.update(model())
    task = Task(update.in_place(model()))
    outputs = task.outputs(torch.zeros(2, 6), dict(update.before))
    assert outputs.dtype == torch.float32


def test_rounds_after_a_server_with_adam_are_read(tmp_path: Path) -> None:
    """Such a server sends float32 in the first round, and float64 from the second one on."""
    net = model()
    for number, dtype in ((1, torch.float32), (2, torch.float64)):
        state = {
            n: leaf.to(dtype) if leaf.is_floating_point() else leaf
            for n, leaf in net.state_dict().items()
        }
        Keeper(tmp_path, training=LocalTraining(lr=LR, steps=1)).keep(
            Exchange(number, "0", state, {n: leaf + 1 for n, leaf in state.items()})
        )
    rounds = read_kept(tmp_path)
    for number in (1, 2):
        found = rounds.round(number, model())
        for state in (*found.received.values(), found.state.shared):
            assert all(leaf.dtype != torch.float64 for leaf in state.values())
