import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from leakgauge.core.checks import InputError
from leakgauge.inversion.search.objective import Cosine, LayerWeighted, SquaredError, direction
from leakgauge.inversion.search.priors import total_variation
from leakgauge.inversion.search.settings import SCHEDULES, factor
from support.references import inversion as reference

SHAPES = {"a.weight": (4, 3), "a.bias": (4,), "b.weight": (2, 4), "scale": ()}
WEIGHTS = {"a.weight": 1.0, "a.bias": 1.0, "b.weight": 7.5, "scale": 0.0}
OF_A, OF_B = ("a.weight", "a.bias"), ("b.weight",)
MODIFIED = {"a.weight": OF_A, "a.bias": OF_A, "b.weight": OF_B}


def stack(rows, seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(rows, *shape, generator=generator, dtype=dtype)
        for name, shape in SHAPES.items()
    }


def with_zeros(grads, seed):
    """Some numbers set to 0, others in each row."""
    generator = torch.Generator().manual_seed(seed)
    kept = {name: torch.rand(grads[name].shape, generator=generator) > 0.4 for name in MODIFIED}
    return {name: value * kept.get(name, 1.0) for name, value in grads.items()}


def modified(wanted):
    """The weights of one target, with the modifier of what was observed."""
    of_zeros = {
        name: reference.zero_modifier([wanted[part] for part in MODIFIED[name] if part in wanted])
        for name in MODIFIED
        if name in wanted
    }
    return {name: WEIGHTS[name] * of_zeros.get(name, 1.0) for name in wanted}


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
    "modified": (
        LayerWeighted(WEIGHTS, modified=MODIFIED),
        lambda found, wanted: reference.weighted_cosine(found, wanted, modified(wanted)),
    ),
    "modified layers": (
        LayerWeighted(WEIGHTS, form="layers", modified=MODIFIED),
        lambda found, wanted: reference.weighted_layers(found, wanted, modified(wanted)),
    ),
}


@pytest.mark.parametrize("name", OBJECTIVES)
@given(rows=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_each_row_is_the_literal_distance(name: str, rows: int, seed: int) -> None:
    ours, literal = OBJECTIVES[name]
    found, wanted = stack(rows, seed), with_zeros(stack(rows, seed + 100), seed)
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


def test_total_variation_is_the_literal_one() -> None:
    images = torch.randn(2, 3, 2, 4, 5, generator=torch.Generator().manual_seed(0))
    expected = [
        sum(reference.total_variation(image) for image in batch) / len(batch) for batch in images
    ]
    torch.testing.assert_close(total_variation(images), torch.tensor(expected))


def test_the_slope_of_the_total_variation_is_that_of_finite_differences() -> None:
    drawn = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 2, 4, 5, generator=drawn, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(total_variation, images)


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


def test_the_direction_is_the_cosine_and_an_update_of_zeros_has_none() -> None:
    guess = {"w": torch.tensor([[3.0, 4.0], [3.0, 4.0], [3.0, 4.0]])}
    observed = {"w": torch.tensor([[6.0, 0.0], [-3.0, -4.0], [0.0, 0.0]])}
    assert direction(guess, observed).tolist() == pytest.approx([0.6, 0.0, 0.0])
