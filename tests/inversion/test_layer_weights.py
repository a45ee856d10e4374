"""How much each layer weighs: the paper's equations worked out by hand, and ours."""

import math

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.inversion.search.layer_weights import WEIGHT_FUNCTIONS, DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import LayerWeighted, stretches, zero_modifier
from leakgauge.models import build
from support.references import inversion as reference


def convolutions(count: int) -> nn.Sequential:
    """Convolutions, and two linear layers behind them."""
    layers = [nn.Conv2d(1, 1, 1) for _ in range(count)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))


def test_linear_weights_are_eq_7() -> None:
    """N = 4 and beta = 50: steps of 49 / 3; the mean of the four is (1 + 50) / 2."""
    found = LayerWeights().of(convolutions(4))
    own = [found[f"{i}.weight"] for i in range(4)]
    assert own == pytest.approx([1.0, 1 + 49 / 3, 1 + 98 / 3, 50.0])
    assert own == [found[f"{i}.bias"] for i in range(4)]
    dense = [found[f"{layer}.{part}"] for layer in (5, 7) for part in ("weight", "bias")]
    assert dense == pytest.approx([25.5] * 4)


TABLE_I = {
    ("constant", 2.0): [1, 1, 1, 1],
    # Rising through (1, 1) and (4, 2): a x + b with a = 1/3, b = 2/3.
    ("linear", 2.0): [1, 4 / 3, 5 / 3, 2],
    # a log x + b with a = 1 / log 4 = 0.7213475, b = 1; log 2 / log 4 = 0.5, log 3 / log 4 =
    # 1.0986123 / 1.3862944 = 0.7924813.
    ("logarithmic", 2.0): [1, 1.5, 1.7924813, 2],
    # a e^x + b with a = 1 / (e^4 - e) = 1 / (54.5981500 - 2.7182818) = 0.0192753,
    # b = 1 - a e = 0.9476042; e^2 = 7.3890561, e^3 = 20.0855369.
    ("exponential", 2.0): [1, 1.0900306, 1.3347587, 2],
    # Falling through (1, 1) and (4, 0.5): the same with -a / 2.
    ("linear", 0.5): [1, 5 / 6, 2 / 3, 0.5],
    ("logarithmic", 0.5): [1, 0.75, 0.6037594, 0.5],
    ("exponential", 0.5): [1, 0.9549847, 0.8326206, 0.5],
}


@pytest.mark.parametrize(("function", "beta"), TABLE_I)
def test_the_functions_are_those_of_table_1(function: str, beta: float) -> None:
    wished = TABLE_I[function, beta]
    found = LayerWeights(function, beta).of(convolutions(4))
    assert [found[f"{i}.weight"] for i in range(4)] == pytest.approx(wished, abs=1e-6)
    assert found["7.weight"] == pytest.approx(sum(wished) / 4, abs=1e-6)
    assert set(WEIGHT_FUNCTIONS) == {name for name, _ in TABLE_I}


def test_the_exponential_does_not_overflow() -> None:
    found = list(LayerWeights("exponential").of(convolutions(900)).values())
    assert found[0] == 1
    assert max(found) == pytest.approx(50)


def test_a_layer_weighs_more_where_its_gradient_has_zeros() -> None:
    """Eq. 8 and Eq. 6 by hand, of two targets with different zeros.

    Two convolutions of two numbers with beta 3, so l = 1, 3, and a linear layer of two, which
    weighs their mean 2 whatever its zeros. The guess is a = (1, 1), b = (1, 0), c = (-1, 0).

    First target: a = (2, 0), half zeros, weighs 1 / (1 - 0.5) = 2; b = (1, 1) weighs 3; c = (1, 0)
    weighs 2. The inner product is 2 * 2 + 3 * 1 - 2 * 1 = 5, the squared norms are
    2 * 2 + 3 * 1 + 2 * 1 = 9 and 2 * 4 + 3 * 2 + 2 * 1 = 16: the distance is 1 - 5 / 12.

    Second target: a = (0, 0), all zeros, weighs 1; b = (4, 0) weighs 3 * 2 = 6; c = (3, 0) weighs
    2. The inner product is 6 * 4 - 2 * 3 = 18, the squared norms 1 * 2 + 6 * 1 + 2 * 1 = 10 and
    6 * 16 + 2 * 9 = 114: the distance is 1 - 18 / sqrt(1140).
    """
    model = nn.Sequential(
        nn.Conv2d(2, 1, 1, bias=False), nn.Conv2d(2, 1, 1, bias=False), nn.Linear(2, 1, bias=False)
    )
    observed = {
        "0.weight": torch.tensor([[2.0, 0.0], [0.0, 0.0]]),
        "1.weight": torch.tensor([[1.0, 1.0], [4.0, 0.0]]),
        "2.weight": torch.tensor([[1.0, 0.0], [3.0, 0.0]]),
    }
    guess = {
        "0.weight": torch.tensor([[1.0, 1.0], [1.0, 1.0]]),
        "1.weight": torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        "2.weight": torch.tensor([[-1.0, 0.0], [-1.0, 0.0]]),
    }
    objective = LayerWeights(beta=3.0).objective(model)
    alpha = stretches(objective, observed)
    assert alpha is not None
    assert {name: rows.tolist() for name, rows in alpha.items()} == {
        "0.weight": [2, 1],
        "1.weight": [3, 6],
        "2.weight": [2, 2],
    }
    expected = torch.tensor([1 - 5 / 12, 1 - 18 / math.sqrt(1140)])
    torch.testing.assert_close(objective(guess, observed), expected)
    # Without the modifier: 1 - (2 + 3 - 2) / sqrt((2 + 3 + 2) * (4 + 6 + 2)) = 1 - 3 / sqrt(84).
    plain = LayerWeights(beta=3.0, relu=False).objective(model)(guess, observed)
    torch.testing.assert_close(plain[0], torch.tensor(1 - 3 / math.sqrt(84)))


def test_the_modifier_counts_all_numbers_of_a_convolution() -> None:
    """Weight and bias together: 3 zeros of 8, so 1 / (1 - 3/8) = 1.6."""
    weight = torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.0, 5.0]], dtype=torch.float64)
    bias = torch.tensor([[0.0, 3.0]], dtype=torch.float64)
    assert zero_modifier([weight, bias]).tolist() == [1.6]
    assert reference.zero_modifier([weight[0], bias[0]]) == 1.6


def test_a_relu_that_is_dead_leaves_zeros_that_count() -> None:
    """Two of four filters see nothing but negative inputs: z = 2 for their layer alone."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1), nn.Flatten(), nn.Linear(8, 2)
    ).double()
    with torch.no_grad():
        for value in model.parameters():
            value.copy_(torch.rand(value.shape, generator=torch.Generator().manual_seed(0)) + 0.1)
        model[0].bias[:2] = -100.0
    x = torch.rand(3, 1, 2, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1, 0]))
    leaves = dict(model.named_parameters())
    grads = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    observed = {name: value[None] for name, value in grads.items()}
    found = stretches(LayerWeights(beta=3.0).objective(model), observed)
    assert found is not None
    # The second convolution has no gradient for the dead channels: 4 of its 8 weights, no bias.
    assert found["0.weight"].item() == pytest.approx(1 * 2)
    assert found["2.weight"].item() == pytest.approx(3 * 10 / 6)
    assert found["4.weight"].item() == pytest.approx(2)


def test_normalisation_weighs_as_the_convolution_that_it_follows() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2)
    )
    found = LayerWeights(beta=3.0).of(model)
    assert {found[name] for name in ("0.weight", "0.bias", "1.weight", "1.bias")} == {1.0}
    assert {found[name] for name in ("3.weight", "3.bias", "4.weight", "4.bias")} == {3.0}
    # It takes the modifier as well, and its own zeros count nowhere.
    objective = LayerWeights(beta=3.0).objective(model)
    observed = {name: torch.ones(1, *leaf.shape) for name, leaf in model.named_parameters()}
    observed["0.weight"][:, 0] = 0.0  # 9 of 18 weights, of 20 numbers
    observed["4.weight"][:] = 0.0
    alpha = stretches(objective, observed)
    assert alpha is not None
    first = [alpha[name].item() for name in ("0.weight", "0.bias", "1.weight", "1.bias")]
    assert first == pytest.approx([20 / 11] * 4)
    assert {alpha[name].item() for name in ("3.weight", "4.weight", "4.bias")} == {3.0}


def test_resnet20_4_has_the_papers_21_convolutions() -> None:
    model = build("resnet20-4", channels=3, classes=10, side=32, generator=torch.Generator())
    found = LayerWeights().of(model)
    own = [weight for name, weight in found.items() if "conv" in name or "downsample.0" in name]
    assert len(own) == 21
    assert own == pytest.approx([1 + 49 / 20 * i for i in range(21)])
    assert found["fc.weight"] == pytest.approx(25.5)


@pytest.mark.parametrize("count", [0, 1])
def test_with_one_convolution_or_none_all_layers_weigh_the_same(count: int) -> None:
    for function in WEIGHT_FUNCTIONS:
        assert set(LayerWeights(function).of(convolutions(count)).values()) == {1.0}


def test_our_weights_grow_over_all_layers() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    found = DepthWeights(maximum=5.0).of(model)
    assert [found[f"{layer}.weight"] for layer in (0, 2, 4)] == [1.0, 3.0, 5.0]
    assert [found[f"{layer}.bias"] for layer in (0, 2, 4)] == [1.0, 3.0, 5.0]
    assert set(DepthWeights().of(nn.Sequential(nn.Linear(2, 2))).values()) == {1.0}


@pytest.mark.parametrize("weights", [LayerWeights(), DepthWeights()])
@pytest.mark.parametrize("net", ["slim", "lenet", "resnet20"])
def test_every_parameter_of_our_nets_weighs_something(net: str, weights) -> None:
    model = build(net, channels=3, classes=10, side=32, generator=torch.Generator())
    assert set(weights.of(model)) == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("weights", [LayerWeights(), DepthWeights()])
def test_frozen_parameters_have_no_weight(weights) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    assert weights.of(model) == {"1.weight": 1.0, "1.bias": 1.0}


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="function of the layer weights"):
        LayerWeights("cubic")
    with pytest.raises(InputError, match=r"weight of the last convolution \(beta\) is 0"):
        LayerWeights(beta=0.0)
    with pytest.raises(InputError, match="weight of the last layer is -1"):
        DepthWeights(maximum=-1.0)
    with pytest.raises(InputError, match=r"'a\.weight' has no gradient"):
        LayerWeighted({"b": 1.0}, modified={"b": ("a.weight",)})(
            {"b": torch.ones(1, 2)}, {"b": torch.ones(1, 2)}
        )
