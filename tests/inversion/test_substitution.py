"""Other values in a model's places, against ``torch.func.functional_call``."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from leakgauge.core.rng import torch_stream
from leakgauge.inversion.double_backward.substitution import ParameterSlots


class Tied(nn.Module):
    """A weight that two layers hold, one that is frozen, a module in two places, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.two.weight, self.again = self.one.weight, self.norm
        self.one.bias.requires_grad_(False)
        self.register_buffer("none", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.two(self.norm(self.one(x))))


def test_a_model_runs_with_other_values_and_has_its_own_afterwards() -> None:
    model, generator = Tied().eval(), torch_stream(0, "values")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    places = ParameterSlots(model)
    assert list(places.trainable) == ["one.weight", "two.bias", "norm.weight", "norm.bias"]
    assert list(places.frozen) == ["one.bias"]
    assert set(places.buffers) == {f"norm.{n}" for n, _ in model.norm.named_buffers()}
    names = [*places.trainable, "norm.running_mean"]
    values = {n: torch.rand(before[n].shape, generator=generator) for n in names}
    x = torch.rand(5, 4, generator=generator)
    with places.filled(values):
        found = model(x)
    # A copy: it leaves a module that is in two places with the other values.
    expected = functional_call(copy.deepcopy(model), values, (x,))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert not torch.equal(found, model(x))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert isinstance(model.one.weight, nn.Parameter)
    assert model.one.weight is model.two.weight


def test_it_has_its_own_also_after_an_error() -> None:
    model = Tied().eval()
    own = model.one.weight
    with (
        pytest.raises(RuntimeError),
        ParameterSlots(model).filled({"one.weight": torch.ones(9, 9)}),
    ):
        model(torch.ones(2, 4))
    assert model.one.weight is own


def test_buffers_are_copied_where_a_module_may_write_them() -> None:
    model = Tied()
    places = ParameterSlots(model)
    before = model.norm.running_mean.clone()
    with places.filled(places.own_buffers()):
        model(torch.rand(5, 4, generator=torch_stream(0, "x")))
    assert torch.equal(model.norm.running_mean, before)
    still = ParameterSlots(model.eval())
    assert still.own_buffers()["norm.running_mean"] is model.norm.running_mean
