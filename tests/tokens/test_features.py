"""Data features, against forward passes written out."""

import copy

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.tokens.features import (
    batch_features,
    check_names,
    default_layers,
    record_features,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 5), nn.Tanh(),
        nn.Linear(5, 2),
    )  # fmt: skip


def images(count: int = 9) -> Tensor:
    return torch.randn(count, 1, 4, 4, generator=seeded(1))


def state(model: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(model.state_dict())


def assert_untouched(model: nn.Module, before: dict[str, Tensor], *, training: bool) -> None:
    assert all(torch.equal(leaf, before[key]) for key, leaf in model.state_dict().items())
    assert all(module.training == training for module in model.modules())
    assert all(leaf.grad is None and leaf.requires_grad for leaf in model.parameters())
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks


@pytest.mark.parametrize(
    ("features", "end"), [(None, 6), ("6", 7), ("4", 5), ("0", 1), ("3", 4), ("2", 3)]
)
@pytest.mark.parametrize("max_bytes", [1, 200, 2**28])
def test_they_are_what_a_module_gives_or_the_last_layer_takes(features, end, max_bytes) -> None:
    model = network().eval()
    x, before, rng = images(), state(model), torch.get_rng_state()
    found = record_features(Task(model), params_of(model), x, features, max_bytes=max_bytes)
    with torch.no_grad():
        torch.testing.assert_close(found, model[:end](x).flatten(1))
    assert not found.requires_grad
    assert_untouched(model, before, training=False)
    assert torch.equal(rng, torch.get_rng_state())


def test_the_parameters_are_those_given() -> None:
    model = network().eval()
    zeros = {name: torch.zeros_like(leaf) for name, leaf in params_of(model).items()}
    assert not record_features(Task(model), zeros, images()).any()
    assert record_features(Task(model), params_of(model), images()).any()


@pytest.mark.parametrize("features", [None, "1", "4"])
def test_batches_pass_the_model_whole(features) -> None:
    """In train mode, batch normalisation makes a record's features depend on its batch."""
    model = network().train()
    x, before, rng = images(), state(model), torch.get_rng_state()
    rows = torch.tensor([[0, 1, 2], [3, 4, 5], [8, 2, 0], [5, 6, 7]])
    found = batch_features(Task(model), params_of(model), x, rows, features)
    assert_untouched(model, before, training=True)
    assert torch.equal(rng, torch.get_rng_state())
    own = copy.deepcopy(model)
    end = 6 if features is None else int(features) + 1
    with torch.no_grad():
        known = torch.stack([own[:end](x[batch]).flatten(1).mean(0) for batch in rows])
    torch.testing.assert_close(found, known)
    alone = torch.stack([own.eval()[:end](x[batch]).detach().flatten(1).mean(0) for batch in rows])
    assert (found - alone).norm() > 0.1 * alone.norm()


def test_dropout_does_not_move_the_callers_generator() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    rng = torch.get_rng_state()
    found = record_features(Task(model), params_of(model), torch.ones(5, 3))
    assert (found == 0).any()
    assert torch.equal(rng, torch.get_rng_state())


class Refuses(nn.Module):
    """Runs on two records, and refuses one that holds a number above 5."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.quiet = nn.Linear(3, 4), nn.Linear(4, 2), nn.Identity()
        self.time = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if bool((x > 5).any()):
            raise RuntimeError("too large")
        return self.two(self.time(self.one(x).T).T)


def test_after_an_error_the_model_is_as_before() -> None:
    model = Refuses().train()
    x, before, rng = torch.ones(6, 3), state(model), torch.get_rng_state()
    x[4] = 9
    with pytest.raises(InputError, match=r"^Refuses refuses inputs \[4, 3\]: too large$"):
        record_features(Task(model), params_of(model), x)
    assert_untouched(model, before, training=True)
    assert torch.equal(rng, torch.get_rng_state())


def test_modules_without_an_output_of_records_are_refused_in_one_line() -> None:
    task = Task(Refuses())
    params, x = params_of(task.model), torch.ones(6, 3)
    with pytest.raises(InputError, match=r"^module 'quiet' does not run, or returns no tensor"):
        record_features(task, params, x, "quiet")
    with pytest.raises(
        InputError, match=r"^module 'time' returns \[4, 2\] for 2 records; expected"
    ):
        record_features(task, params, x, "time")


def test_a_module_of_several_outputs_gives_its_first() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.GRU(2, 3, batch_first=True))
    x = torch.randn(4, 5, 2, generator=seeded())
    found = record_features(Task(model), params_of(model), x, "0")
    torch.testing.assert_close(found, model(x)[0].detach().flatten(1))


class Backwards(nn.Module):
    """Runs its layers in another order than it registers them."""

    def __init__(self) -> None:
        super().__init__()
        self.second, self.first = nn.Linear(4, 2), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


def test_the_last_layer_is_the_one_that_runs_last() -> None:
    model = Backwards()
    x = torch.randn(5, 3, generator=seeded())
    assert default_layers(Task(model), x) == ["first", "second"]
    found = record_features(Task(model), params_of(model), x)
    torch.testing.assert_close(found, model.first(x).relu().detach())


def test_names_that_do_not_exist_name_the_nearest() -> None:
    task, x = Task(Backwards()), torch.ones(5, 3)
    check_names(task, x, "first", ["second", "first"])
    check_names(task, x, None, [])
    with pytest.raises(InputError, match=r"no layer 'secnd' to watch; did you mean 'second'\?$"):
        check_names(task, x, None, ["first", "secnd"])
    with pytest.raises(InputError, match=r"no module 'fist' for data features; did you mean 'fi"):
        check_names(task, x, "fist", ["first"])
