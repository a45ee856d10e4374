"""Opacus' real optimizer with a monitor: its accountant counts on, and what is released is seen."""

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from support.loops import batches, network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus import PrivacyEngine

from leakgauge import InputError, Monitor
from leakgauge.integrations.opacus import watching
from support.opacus_warnings import QUIET

pytestmark = QUIET


def private(noise: float = 1.0) -> tuple[PrivacyEngine, nn.Module, Any, Any]:
    torch.manual_seed(0)
    model = network()
    ((x, y),) = batches(1, size=96)
    loader = DataLoader(TensorDataset(x, y), batch_size=12)
    engine = PrivacyEngine()
    private_model, optimizer, private_loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=0.5,
        poisson_sampling=False,
    )
    return engine, private_model, optimizer, private_loader


def train(model: nn.Module, optimizer: Any, loader: Any, epochs: int = 2) -> None:
    torch.manual_seed(1)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def test_epsilon_and_weights_are_those_without_it() -> None:
    results = []
    for how in ("alone", "watching", "two lines"):
        engine, model, optimizer, loader = private()
        monitor = Monitor(model, every=4, checkpoints=0)
        hook = optimizer.step_hook
        around = {
            "alone": nullcontext(),
            "watching": watching(optimizer, monitor),
            "two lines": monitor,
        }[how]
        with around:
            train(model, optimizer, loader)
        assert optimizer.step_hook is hook
        if how != "alone":
            assert monitor.next_step == 16
            assert [one["step"] for one in monitor.records] == [0, 4, 8, 12]
            assert monitor.notes == []
        results.append((engine.get_epsilon(delta=1e-5), list(model.parameters())))
    epsilon, weights = results[0]
    assert epsilon > 0.5
    for other, others in results[1:]:
        assert other == epsilon
        assert all(map(torch.equal, weights, others))


def test_without_the_chain_the_accountant_would_not_count() -> None:
    """What the adapter prevents: a second hook takes the accountant's place."""
    engine, model, optimizer, loader = private()
    optimizer.attach_step_hook(lambda _: None)
    train(model, optimizer, loader)
    assert len(engine.accountant) == 0


def test_the_released_gradient_is_seen() -> None:
    _, model, optimizer, loader = private()
    monitor = Monitor(model, every=100, checkpoints=[10**6], width=10**4, gather=1)
    released: list[Tensor] = []
    optimizer.original_optimizer.register_step_pre_hook(
        lambda *given: released.append(model._module[5].weight.grad.clone())
    )
    with watching(optimizer, monitor):
        train(model, optimizer, loader, epochs=1)
        kept = monitor._observer.reading.split(monitor._estimates._kept_gradients.rows())
    assert sorted(kept) == ["0", "3", "5"]  # without Opacus' prefix
    assert len(released) == len(kept["5"]) == 8
    for row, true in zip(kept["5"], released, strict=True):
        missing = set(true.flatten().tolist()) - set(row.tolist())
        assert not missing


@pytest.mark.calibration
def test_noise_hides_records_in_the_cheap_measure() -> None:
    """Gradients of a linear model far from its targets show the inputs, but for the noise."""
    values = {}
    for noise in (0.0, 100.0):
        torch.manual_seed(0)
        model = nn.Linear(30, 1)
        engine = PrivacyEngine()
        private_model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
            data_loader=DataLoader(TensorDataset(torch.randn(96, 30)), batch_size=24),
            noise_multiplier=noise,
            max_grad_norm=0.5,
            poisson_sampling=False,
        )
        monitor = Monitor(private_model, every=1, checkpoints=0)
        with watching(optimizer, monitor):
            for (x,) in loader:
                optimizer.zero_grad()
                (private_model(x) - 100).square().mean().backward()
                optimizer.step()
        values[noise] = torch.tensor([one["cheap"] for one in monitor.records])
    assert len(values[0.0]) == 4
    assert values[0.0].min() > 0.9
    assert values[100.0].abs().max() < 0.5


def test_another_optimizer_is_refused() -> None:
    model = network()
    with (
        pytest.raises(InputError, match="expected the DPOptimizer"),
        watching(torch.optim.SGD(model.parameters(), 0.1), Monitor(model)),
    ):
        pass


def test_an_error_in_the_loop_gives_the_place_back() -> None:
    _, model, optimizer, _ = private()
    hook, monitor = optimizer.step_hook, Monitor(model, checkpoints=0)
    with pytest.raises(KeyError), watching(optimizer, monitor):
        raise KeyError
    assert optimizer.step_hook is hook
    assert not monitor.is_open
