"""Gradients of records as factors, compared with full gradients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of, per_example_gradients
from leakgauge.gradients.factored.factors import factors


class Words(nn.Module):
    """Embedding, convolution, normalisation and linear layers, over a sequence and alone."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.each = nn.Linear(6, 5)
        self.local = nn.Conv1d(5, 4, 3, padding=1)
        self.out = nn.Linear(4 * 8, 3, bias=False)

    def forward(self, x):
        x = functional.relu(self.each(self.norm(self.words(x))))
        return self.out(functional.relu_(self.local(x.mT)).flatten(1))


def records(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(7, (count, 8), generator=generator)
    return words, torch.randint(3, (count,), generator=generator)


def double(model: nn.Module, loss="cross_entropy") -> Task:
    torch.manual_seed(0)
    for leaf in model.parameters():
        nn.init.normal_(leaf, std=0.5)
    return Task(model.double(), loss)


KINDS = {
    "words": "EmbeddingFactors",
    "norm": "WholeGradients",
    "each": "LinearFactors",
    "local": "ConvolutionFactors",
    "out": "LinearFactors",
}


@pytest.fixture
def words():
    task = double(Words())
    x, y = records()
    params = params_of(task.model)
    return factors(task, params, x, y), per_example_gradients(task, params, x, y)


def close(found: torch.Tensor, exact: torch.Tensor, tolerance: float = 1e-10) -> bool:
    return bool((found - exact).norm() <= tolerance * exact.norm())


def flat(exact, names) -> torch.Tensor:
    return torch.cat([exact[name].flatten(1) for name in names], dim=1)


def test_gradients_are_those_of_each_record(words) -> None:
    found, exact = words
    assert {name: type(one).__name__ for name, one in found.items()} == KINDS
    made = {name: leaf for one in found.values() for name, leaf in one.gradient().items()}
    assert made.keys() == exact.keys()
    assert all(close(leaf, exact[name]) for name, leaf in made.items())


@pytest.mark.parametrize("dtype", [torch.float32])
def test_the_error_in_float32_is_below_one_in_a_hundred_thousand(dtype) -> None:
    task, (x, y) = double(Words()), records(40)
    exact = per_example_gradients(task, params_of(task.model), x, y)
    single = Task(task.model.to(dtype), task.loss)
    for one in factors(single, params_of(single.model), x, y).values():
        for name, leaf in one.gradient().items():
            assert close(leaf.double(), exact[name], 1e-5)


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_norms_are_those_of_all_parameters_of_a_layer(words, p) -> None:
    found, exact = words
    for one in found.values():
        whole = flat(exact, one.gradient())
        assert close(one.norms(p), torch.linalg.vector_norm(whole, p, dim=1))


def test_ranges_are_those_of_all_parameters_of_a_layer(words) -> None:
    found, exact = words
    for one in found.values():
        whole = flat(exact, one.gradient())
        assert close(one.range(), whole.max(1).values - whole.min(1).values)


def test_projections_and_their_slopes_are_those_of_the_weight(words) -> None:
    found, exact = words
    for one in found.values():
        kernels = torch.randn(3, one.in_features, dtype=torch.float64, requires_grad=True)
        weight = next(iter(one.gradient()))
        plain = exact[weight].reshape(6, one.out, one.in_features) @ kernels.T
        made = one.project(kernels)
        assert close(made, plain)
        slopes = [torch.autograd.grad(each.cos().sum(), kernels)[0] for each in (made, plain)]
        assert close(*slopes)


def test_rows_numbers_and_tensors_can_be_taken(words) -> None:
    found, exact = words
    for one in found.values():
        some = one.rows(torch.tensor([4, 1]))
        assert len(some) == 2
        name, leaf = next(iter(some.gradient().items()))
        assert close(leaf, exact[name][[4, 1]])
        assert next(iter(one.to(torch.float32).gradient().values())).dtype == torch.float32
        again = one.replaced({name: leaf.clone() for name, leaf in one.tensors().items()})
        assert close(again.norms(), one.norms())


@st.composite
def convolutions(draw):
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 2))

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kernel, dilation = sizes(1, 3), sizes(1, 2)
    padding = draw(st.one_of(st.just("same"), st.just("valid"), st.just(sizes(0, 2))))
    stride = (1,) * dims if padding == "same" else sizes(1, 3)
    made = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        2 * groups, 3 * groups, kernel, stride, padding, dilation, groups, draw(st.booleans())
    )
    return made, sizes(5, 6)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_convolutions_of_any_geometry(drawn) -> None:
    layer, space = drawn
    task = double(nn.Sequential(layer, nn.Flatten()), "mse")
    x = torch.randn(3, layer.in_channels, *space, dtype=torch.float64)
    y = torch.randn_like(task.model(x)).detach()
    params = params_of(task.model)
    (one,) = factors(task, params, x, y).values()
    exact = per_example_gradients(task, params, x, y)
    assert all(close(leaf, exact[name]) for name, leaf in one.gradient().items())
    kernels = torch.randn(2, one.in_features, dtype=torch.float64)
    assert close(one.project(kernels), exact["0.weight"].flatten(2) @ kernels.T)


@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_norms_of_sequences_by_pairs_and_by_gradients(length: int, bias: bool) -> None:
    task = double(nn.Sequential(nn.Linear(12, 9, bias=bias), nn.Flatten()), "mse")
    x = torch.randn(4, length, 12, dtype=torch.float64)
    y = torch.randn(4, 9 * length, dtype=torch.float64)
    params = params_of(task.model)
    one = factors(task, params, x, y)["0"]
    whole = flat(per_example_gradients(task, params, x, y), one.gradient())
    assert close(one.norms(), whole.norm(dim=1))


class Shared(nn.Module):
    """One layer that runs twice, and one whose weight a function uses again."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.again = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        x = self.twice(torch.tanh(self.twice(x)))
        return functional.linear(torch.tanh(self.again(x)), self.again.weight)


class Mixed(nn.Module):
    """A model in which records interact."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x - 0.5 * x.mean(0))


@pytest.mark.parametrize("model", [Shared, Mixed])
def test_what_is_no_product_falls_back_to_exact_gradients(model) -> None:
    task = double(model())
    x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    params = params_of(task.model)
    found = factors(task, params, x, y)
    assert {type(one).__name__ for one in found.values()} == {"WholeGradients"}
    exact = per_example_gradients(task, params, x, y)
    for one in found.values():
        assert all(close(leaf, exact[name]) for name, leaf in one.gradient().items())


def test_any_loss_counts_for_each_record_alone() -> None:
    def total(outputs, y):  # a sum, not a mean
        return functional.cross_entropy(outputs, y, reduction="sum")

    def branches(outputs, y):
        return functional.cross_entropy(outputs, y) * (
            2 if float(outputs.detach().sum()) > 0 else 1
        )

    for loss in (total, branches):
        task = double(nn.Linear(3, 3), loss)
        x, y = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
        params = params_of(task.model)
        (one,) = factors(task, params, x, y).values()
        exact = per_example_gradients(task, params, x, y)
        assert all(close(leaf, exact[name]) for name, leaf in one.gradient().items())


def test_the_model_stays_as_it_is_also_after_an_error() -> None:
    task, (x, y) = double(Words()), records()
    before = {name: leaf.clone() for name, leaf in task.model.state_dict().items()}
    factors(task, params_of(task.model), x, y)
    with pytest.raises(InputError, match=r"has no layer 'outt'.*did you mean 'out'"):
        factors(task, params_of(task.model), x, y, layers=["outt"])
    with pytest.raises((InputError, RuntimeError)):
        factors(task, params_of(task.model), x[:, :3], y)
    assert all(torch.equal(before[name], leaf) for name, leaf in task.model.state_dict().items())
    assert not any(module._forward_hooks for module in task.model.modules())
    assert all(leaf.grad is None for leaf in task.model.parameters())
