"""Outputs of layers behind their activations, against the models written out."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.layers.representations import Outputs, layer_outputs
from leakgauge.models import build


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_those_of_a_stack_of_convolutions() -> None:
    model = build("alexnet", channels=3, classes=2, side=8, generator=seeded())
    x = torch.randn(7, 3, 8, 8, generator=seeded(1))
    found = layer_outputs(Task(model), params_of(model), x)
    places = {"0": 2, "3": 5, "6": 8, "10": 12, "12": 13}
    assert list(found) == list(places)
    for name, end in places.items():
        assert torch.equal(found[name], model[:end](x).detach().flatten(1))


class Reused(nn.Module):
    """One activation module for two layers, a normalisation between, and a function."""

    def __init__(self, *, inplace: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.norm, self.bend = nn.LayerNorm(4), nn.ReLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bend(self.norm(self.one(x)))
        x = self.bend(self.two(x))
        return self.three(self.two(x).relu_())


@pytest.mark.parametrize("inplace", [False, True])
def test_an_activation_counts_only_directly_behind_its_layer(*, inplace: bool) -> None:
    model = Reused(inplace=inplace)
    for leaf in model.parameters():
        nn.init.normal_(leaf, generator=seeded())
    x = torch.randn(5, 3, generator=seeded(1))
    before = copy.deepcopy(model.state_dict())
    found = layer_outputs(Task(model), params_of(model), x)
    with torch.no_grad():
        one = x @ model.one.weight.T + model.one.bias
        norm = nn.functional.layer_norm(one, (4,), model.norm.weight, model.norm.bias).relu()
        twice = (norm @ model.two.weight.T + model.two.bias).relu()
        again = twice @ model.two.weight.T + model.two.bias
        out = again.relu() @ model.three.weight.T + model.three.bias
    wanted = {"one": one, "norm": norm, "two": torch.cat([twice, again], 1), "three": out}
    assert list(found) == list(wanted)
    for name, leaf in wanted.items():
        torch.testing.assert_close(found[name], leaf)
    assert (again < 0).any()
    assert not any(module._forward_hooks for module in model.modules())
    assert all(torch.equal(leaf, before[key]) for key, leaf in model.state_dict().items())


def test_chunks_and_chosen_layers_do_not_matter() -> None:
    model = build("fcnet", channels=1, classes=2, side=4, generator=seeded())
    x = torch.randn(9, 1, 4, 4, generator=seeded(1))
    whole = layer_outputs(Task(model), params_of(model), x)
    some = layer_outputs(Task(model), params_of(model), x, layers=["3", "1"], max_bytes=1)
    assert list(some) == ["3", "1"]
    for name, leaf in some.items():
        torch.testing.assert_close(leaf, whole[name])


@pytest.mark.parametrize(("most", "passes"), [(10**9, 1), (2 * 9 * 32 * 4, 5), (1, 9)])
def test_layers_share_passes_as_far_as_memory_lets_them(monkeypatch, most, passes) -> None:
    model = build("fcnet", channels=1, classes=32, side=4, generator=seeded())
    x = torch.randn(9, 1, 4, 4, generator=seeded(1))
    task, params = Task(model), params_of(model)
    whole = layer_outputs(task, params, x)
    asked: list[int] = []

    def counted(*given, layers=None):
        asked.append(len(given[2]))
        return layer_outputs(*given, layers=layers)

    monkeypatch.setattr("leakgauge.layers.representations.layer_outputs", counted)
    some = Outputs(task, params, x, list(whole), max_bytes=most)
    for name, leaf in whole.items():
        torch.testing.assert_close(some.of(name), leaf)
    assert asked == [2] + [9] * passes


def test_the_parameters_are_those_given() -> None:
    model = nn.Linear(2, 2)
    zeros = {name: torch.zeros_like(leaf) for name, leaf in params_of(model).items()}
    assert not layer_outputs(Task(model), zeros, torch.ones(3, 2))[""].any()


class Functional(nn.Module):
    """Uses the weights of a layer that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.quiet, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(nn.functional.linear(x, self.quiet.weight))


class TimeFirst(nn.Module):
    """Its recurrent layer has time on the first axis."""

    def __init__(self) -> None:
        super().__init__()
        self.over = nn.RNN(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.over(x.transpose(0, 1))[0][-1]


@pytest.mark.parametrize("names", [["quiet", "out"], ["out", "quiet"]])
def test_a_layer_that_never_runs_leaves_the_others_alone(names: list[str]) -> None:
    task, x = Task(Functional()), torch.ones(4, 3)
    some = Outputs(task, params_of(task.model), x, names)
    for name in names:
        if name == "out":
            assert some.of(name).shape == (4, 2)
        else:
            with pytest.raises(InputError, match="layer 'quiet' never runs by itself"):
                some.of(name)


def test_layers_without_an_output_of_records() -> None:
    task, x = Task(Functional()), torch.ones(4, 3)
    assert list(layer_outputs(task, params_of(task.model), x)) == ["out"]
    with pytest.raises(InputError, match="layer 'quiet' never runs by itself"):
        layer_outputs(task, params_of(task.model), x, layers=["quiet"])
    with pytest.raises(InputError, match="did you mean 'out'"):
        layer_outputs(task, params_of(task.model), x, layers=["oot"])
    first = Task(TimeFirst())
    with pytest.raises(InputError, match=r"'over' is \[5, 2, 3\] for 2 records"):
        layer_outputs(first, params_of(first.model), torch.ones(4, 5, 2))


def test_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAKGAUGE_MAX_MEMORY", "601MB")
    task = Task(nn.Linear(1, 500))
    with pytest.raises(InputError, match="the outputs of layers needs"):
        layer_outputs(task, params_of(task.model), torch.ones(math.ceil(1e4), 1))
