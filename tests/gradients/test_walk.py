"""The layers of a model in the order in which they run."""

import pytest
import torch
from torch import nn

from leakgauge.core.types import Task
from leakgauge.gradients.walk import by_layer, walk
from leakgauge.models import resnet20


class Backwards(nn.Module):
    """Registers its layers in another order than it runs them, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.shared = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.first = nn.Linear(3, 4)
        self.unused = nn.Linear(1, 1)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        x = self.shared(self.norm(self.shared(self.first(x))))
        return self.last(x) * self.scale


def names(model: nn.Module, x: torch.Tensor | None = None) -> list[str]:
    return [one.name for one in walk(Task(model), x)]


def test_layers_come_in_forward_order_and_unused_ones_last() -> None:
    model = Backwards()
    before = {name: leaf.clone() for name, leaf in model.state_dict().items()}
    found = walk(Task(model), torch.randn(5, 3))
    assert [one.name for one in found] == ["", "first", "shared", "norm", "last", "unused"]
    assert [one.order for one in found] == list(range(6))
    assert [one.kind for one in found[1:4]] == ["linear", "linear", "normalisation"]
    assert found[0].parameters == ("scale",)
    assert found[1].parameters == ("first.weight", "first.bias")
    assert all(torch.equal(before[name], leaf) for name, leaf in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model.training


def test_without_records_layers_come_as_they_are_registered() -> None:
    assert names(Backwards()) == ["", "last", "shared", "norm", "first", "unused"]


def test_frozen_parameters_belong_to_no_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    assert walk(Task(model))[0].parameters == ("1.weight",)


def test_a_layer_used_by_the_module_around_it_takes_its_place() -> None:
    class Attends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(4, 2)
            self.attend = nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, x):
            return self.out(self.attend(x, x, x)[0].mean(1))

    assert names(Attends(), torch.randn(2, 3, 4)) == ["attend", "attend.out_proj", "out"]


def test_a_resnet_is_walked_as_it_is_built() -> None:
    model = resnet20(3, 10, generator=torch.Generator().manual_seed(0))
    assert names(model, torch.zeros(2, 3, 32, 32)) == names(model)


def test_a_model_that_fails_keeps_no_hooks() -> None:
    model = Backwards()
    with pytest.raises(RuntimeError):
        walk(Task(model), torch.randn(2, 7))
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_parameters_of_a_parametrisation_belong_to_its_layer() -> None:
    made = nn.utils.parametrizations
    model = nn.Sequential(made.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 2))
    made.spectral_norm(model[2])
    found = walk(Task(model.eval()), torch.zeros(2, 3))
    assert [(one.name, one.kind) for one in found] == [("0", "linear"), ("2", "linear")]
    each = [name for one in found for name in one.parameters]
    assert sorted(each) == sorted(name for name, _ in model.named_parameters())
    assert list(by_layer(each)) == ["0", "2"]
    alone = made.weight_norm(nn.Linear(3, 4))
    assert [one.name for one in walk(Task(alone), torch.zeros(2, 3))] == [""]
