"""Weights moved along an objective's slope: what is worked out from sums, against autograd."""

import pytest
import torch
from torch import Tensor

from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads
from leakgauge.inversion.double_backward.difference import WeightPerturbation
from leakgauge.inversion.search.objective import Cosine, LayerWeighted

SHAPES = {"a.weight": (6, 4), "a.bias": (6,), "b.weight": (3, 6), "b.bias": (3,)}
WEIGHTS = {"a.weight": 1.0, "a.bias": 0.0, "b.weight": 7.0, "b.bias": 3.0}
OBJECTIVES = {
    "cosine": Cosine(),
    "some layers": Cosine(layers=("a.weight", "b.bias")),
    "biases": Cosine(layers=("a.bias", "b.bias")),
    "weighted": LayerWeighted(WEIGHTS),
    "modified": LayerWeighted(
        WEIGHTS, modified={"a.weight": ("a.weight", "a.bias"), "b.weight": ("b.weight",)}
    ),
}


def drawn(name: str, rows: int = 1, dtype: torch.dtype = torch.float64) -> Grads:
    generator = torch_stream(0, name)
    return {
        key: torch.randn(rows, *shape, generator=generator, dtype=torch.float64).to(dtype)
        for key, shape in SHAPES.items()
    }


def both(
    objective, found: Grads, wanted: Grads, row: int
) -> list[tuple[Tensor, Grads, Tensor | float]]:
    """Return results of sums and of autograd, since a function is not recognised as a cosine."""
    params = {name: value[0] for name, value in drawn("weights").items()}
    params = {name: value.to(found[name]) for name, value in params.items()}
    sides = objective, lambda *given: objective(*given)
    return [WeightPerturbation(side, params, wanted, 1e-3)(found, row) for side in sides]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_sums_tell_what_autograd_finds(name: str) -> None:
    wanted = drawn("wanted", 3)
    wanted["a.weight"][2, 1:] = 0.0  # of the other targets nothing: weights differ
    wanted["b.weight"][0, :, :2] = 0.0
    ours, theirs = both(OBJECTIVES[name], drawn("found"), wanted, row=2)
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-12, atol=0)
    assert ours[2] == pytest.approx(float(theirs[2]), rel=1e-9)
    for key, value in theirs[1].items():
        torch.testing.assert_close(ours[1][key], value, rtol=1e-12, atol=1e-12)


def test_the_layer_that_moves_most_moves_by_the_step() -> None:
    params = {name: value[0] for name, value in drawn("weights").items()}
    _, moved, _ = WeightPerturbation(Cosine(), params, drawn("wanted"), 1e-3)(drawn("found"), 0)
    shares = [
        float((moved[name] - own).norm() / own.norm())
        for name, own in params.items()
        if own.dim() > 1
    ]
    assert max(shares) == pytest.approx(1e-3, rel=1e-9)


def test_gradients_that_nearly_agree_do_not_spoil_the_size() -> None:
    """The squares in the sums then cancel to their last digits."""
    wanted = drawn("wanted", dtype=torch.float32)
    noise = drawn("noise", dtype=torch.float32)
    found = {name: value + 1e-4 * noise[name] for name, value in wanted.items()}
    ours, _ = both(Cosine(), found, wanted, row=0)
    exactly = [{k: v.double() for k, v in side.items()} for side in (found, wanted)]
    _, theirs = both(Cosine(), *exactly, row=0)
    assert ours[2] == pytest.approx(float(theirs[2]), rel=0.01)


def test_gradients_that_agree_are_at_no_distance() -> None:
    """Sums in single precision lose digits, but both sides the same ones."""
    long = {"w": torch.randn(1, 3_000_000, generator=torch_stream(0, "long"))}
    assert abs(float(Cosine()(long, long))) < 1e-6
    value, moved, _ = WeightPerturbation(Cosine(), {"w": torch.ones(3_000_000)}, long, 1e-3)(
        long, 0
    )
    assert abs(float(value)) < 1e-6
    assert torch.isfinite(moved["w"]).all()
