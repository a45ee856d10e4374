import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.inversion.search.layer_weights import WEIGHT_FUNCTIONS, LayerWeights
from leakgauge.inversion.search.objective import Cosine, LayerWeighted, SquaredError
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.schedule import SCHEDULES, factor
from leakgauge.models import build
from support.references import inversion as reference

SHAPES = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (2, 4), "scale": ()}
WEIGHTS = {"a.weight": 1.0, "a.bias": 1.0, "b.weight": 7.5, "scale": 0.0}


def stack(rows, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(rows, *shape, generator=generator, dtype=dtype)
        for name, shape in SHAPES.items()
    }


def row(grads, at):
    return {name: value[at] for name, value in grads.items()}


OBJECTIVES = {
    "squared": (SquaredError(), reference.squared_error),
    "cosine": (Cosine(), reference.cosine),
    "layers": (
        LayerWeighted(WEIGHTS, form="layers"),
        lambda found, wanted: reference.weighted_layers(found, wanted, WEIGHTS),
    ),
    "vector": (
        LayerWeighted(WEIGHTS),
        lambda found, wanted: reference.weighted_cosine(found, wanted, WEIGHTS),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@given(rows=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_each_row_is_the_literal_distance(name: str, rows: int, seed: int) -> None:
    ours, literal = OBJECTIVES[name]
    found, wanted = stack(rows, seed), stack(rows, seed + 100)
    expected = [literal(row(found, at), row(wanted, at)) for at in range(rows)]
    torch.testing.assert_close(ours(found, wanted), torch.stack(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_derivatives_are_finite_differences(name: str) -> None:
    ours, wanted = OBJECTIVES[name][0], stack(3, 1)
    leaves = [value.requires_grad_() for value in stack(3, 2).values()]

    def value(*given):
        return ours(dict(zip(SHAPES, given, strict=True)), wanted)

    assert torch.autograd.gradcheck(value, leaves)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_only_the_chosen_layers_are_compared(name: str) -> None:
    ours, literal = OBJECTIVES[name]
    chosen = type(ours)(**{**vars(ours), "layers": ("b.weight",)})
    found, wanted = stack(2, 3), stack(2, 4)
    alone = literal({"b.weight": found["b.weight"][1]}, {"b.weight": wanted["b.weight"][1]})
    torch.testing.assert_close(chosen(found, wanted)[1], alone)
    with pytest.raises(InputError, match=r"'c\.weight' has no gradient; did you mean"):
        type(ours)(**{**vars(ours), "layers": ("c.weight",)})(found, wanted)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-15, 1e12])
def test_float32_stays_finite(name: str, scale: float) -> None:
    """A dead layer, or a tiny or huge gradient: neither value nor derivative is NaN."""
    ours = OBJECTIVES[name][0]
    found = {k: (scale * v).requires_grad_() for k, v in stack(2, 5, torch.float32).items()}
    wanted = {k: scale * v for k, v in stack(2, 6, torch.float32).items()}
    value = ours(found, wanted)
    assert value.isfinite().all()
    for slope in torch.autograd.grad(value.sum(), list(found.values()), allow_unused=True):
        assert slope is None or slope.isfinite().all()


def test_one_dead_layer_changes_nothing_for_the_others() -> None:
    found, wanted = stack(2, 7), stack(2, 8)
    for grads in (found, wanted):
        grads["a.weight"] = torch.zeros_like(grads["a.weight"])
    expected = reference.cosine(row(found, 0), row(wanted, 0))
    torch.testing.assert_close(Cosine()(found, wanted)[0], expected)


def test_a_layer_without_a_gradient_has_no_distance() -> None:
    """Only the others count, where the records leave a layer without any gradient."""
    found, wanted = stack(2, 7), stack(2, 8)
    wanted["b.weight"] = torch.zeros_like(wanted["b.weight"])
    names = ("a.weight", "a.bias")
    expected = reference.weighted_layers(*({k: g[k][0] for k in names} for g in (found, wanted)),
                                         WEIGHTS)  # fmt: skip
    ours = LayerWeighted(WEIGHTS, form="layers")
    torch.testing.assert_close(ours(found, wanted)[0], expected)


def test_constant_weights_on_the_vector_are_the_plain_cosine() -> None:
    found, wanted = stack(3, 11), stack(3, 12)
    flat = LayerWeighted(dict.fromkeys(SHAPES, 4.0))
    torch.testing.assert_close(flat(found, wanted), Cosine()(found, wanted))


def test_cosine_is_invariant_to_scale_and_squared_error_is_not() -> None:
    found, wanted = stack(2, 9), stack(2, 10)
    twice = {name: 2 * value for name, value in found.items()}
    torch.testing.assert_close(Cosine()(twice, wanted), Cosine()(found, wanted))
    assert (SquaredError()(twice, wanted) != SquaredError()(found, wanted)).all()


def test_weights_are_refused() -> None:
    with pytest.raises(InputError, match="weight of 'a' is -1"):
        LayerWeighted({"a": -1.0})
    with pytest.raises(InputError, match="all layers weigh 0"):
        LayerWeighted({"a": 0.0})
    with pytest.raises(InputError, match="'scale' has no weight"):
        LayerWeighted({"a.weight": 1.0, "a.bias": 1.0, "b.weight": 1.0})(stack(1, 0), stack(1, 1))


@pytest.mark.parametrize("growth", WEIGHT_FUNCTIONS)
def test_weights_rise_from_one_to_the_maximum(growth: str) -> None:
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(6)])
    found = list(LayerWeights(growth, maximum=9.0).of(model).values())[::2]
    assert found[0] == 1
    assert found == sorted(found)
    assert found[-1] == pytest.approx(1 if growth == "constant" else 9)


def test_there_are_seven_different_weight_functions() -> None:
    halves = {round(growth(0.5), 6) for growth in WEIGHT_FUNCTIONS.values()}
    assert len(WEIGHT_FUNCTIONS) == len(halves) == 7


def test_linear_weights_are_eq_7() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    found = LayerWeights(maximum=5.0).of(model)
    assert found == {
        "0.weight": 1.0,
        "0.bias": 1.0,
        "2.weight": 3.0,
        "2.bias": 3.0,
        "4.weight": 5.0,
        "4.bias": 5.0,
    }


def test_normalisation_weighs_as_the_layer_that_it_follows() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2)
    )
    found = LayerWeights(maximum=3.0).of(model)
    assert {found[name] for name in ("0.weight", "0.bias", "1.weight", "1.bias")} == {1.0}
    assert {found[name] for name in ("3.weight", "3.bias", "4.weight", "4.bias")} == {3.0}


class Residual(nn.Module):
    """A ReLU after an addition, one by a function, and none after the head."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.second = nn.Conv2d(2, 2, 3, padding=1)
        self.gate = nn.Linear(2, 2)
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        x = self.norm(self.first(x)).relu()
        x = F.relu(self.second(x) + x).mean((2, 3))
        return self.head(torch.sigmoid(self.gate(x)))


def test_layers_before_a_relu_take_its_factor() -> None:
    plain = LayerWeights("constant").of(Residual())
    found = LayerWeights("constant", relu=0.5).of(Residual())
    halved = {name for name in found if found[name] == 0.5 * plain[name]}
    assert {name.split(".")[0] for name in halved} == {"first", "norm", "second"}


def test_relus_that_cannot_be_followed_are_refused() -> None:
    class Branching(nn.Linear):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    model = nn.Sequential(nn.Linear(2, 2))
    model.add_module("branch", Branching(2, 2))
    model.forward = lambda x: x if x.sum() > 0 else -x
    assert LayerWeights().of(model)
    with pytest.raises(InputError, match=r"torch\.fx cannot follow Sequential"):
        LayerWeights(relu=2.0).of(model)


@pytest.mark.parametrize("net", ["slim", "lenet", "resnet20"])
def test_every_parameter_of_our_nets_weighs_something(net: str) -> None:
    model = build(net, channels=3, classes=10, side=32, generator=torch.Generator())
    for weights in (LayerWeights(), LayerWeights(relu=2.0)):
        assert set(weights.of(model)) == {name for name, _ in model.named_parameters()}


def test_frozen_parameters_have_no_weight() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    assert LayerWeights().of(model) == {"1.weight": 1.0, "1.bias": 1.0}


def test_total_variation_is_the_literal_one() -> None:
    images = torch.randn(2, 3, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    expected = [
        sum(reference.total_variation(image) for image in batch) / len(batch) for batch in images
    ]
    torch.testing.assert_close(total_variation(images), torch.tensor(expected))


def test_total_variation_is_refused_for_tables() -> None:
    with pytest.raises(InputError, match="set total_variation to 0"):
        total_variation(torch.zeros(2, 14))


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_start_at_one_and_never_rise(name: str) -> None:
    found = [factor(name, at, 80) for at in range(80)]
    assert found[0] == 1
    assert found == sorted(found, reverse=True)


def test_schedules_known_values() -> None:
    assert factor("step-down", 29, 80) == 1
    assert factor("step-down", 30, 80) == pytest.approx(0.1)
    assert factor("step-down", 70, 80) == pytest.approx(1e-3)
    assert factor("cosine", 20, 80) == pytest.approx((1 + math.sqrt(0.5)) / 2)
    assert factor("cosine", 0, 80, warmup=4) == 0.25
