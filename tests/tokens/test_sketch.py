"""Sketches of vectors: linear, and unbiased for inner products."""

import pytest
import torch

from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.sketch import Sketch


def vectors(count: int, size: int, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, size, generator=generator, dtype=torch.float64)


def matrix(sketch: Sketch) -> torch.Tensor:
    """Return the map itself ``[p, width]``."""
    return sketch(torch.eye(sketch.size, dtype=torch.float64))


def test_it_is_a_matrix_of_one_sign_a_row() -> None:
    sketch = Sketch(50, width=7, seed=3)
    made = matrix(sketch)
    assert (made != 0).sum(1).tolist() == [1] * 50
    assert made.abs().max(1).values.tolist() == [1.0] * 50
    assert {-1.0, 1.0} <= set(made.flatten().tolist())
    values = vectors(4, 50)
    torch.testing.assert_close(sketch(values), values @ made)


@pytest.mark.parametrize("size", [1, 6, 7])
def test_short_vectors_pass_unchanged(size: int) -> None:
    values = vectors(3, size)
    sketch = Sketch(size, width=7, seed=0)
    assert torch.equal(sketch(values), values)
    assert sketch.width == size


def test_inner_products_are_kept_in_the_mean_over_seeds() -> None:
    one, other = vectors(2, 40)
    other = other + one
    truth = float(one @ other)
    found = []
    for seed in range(3000):
        sketch = Sketch(40, width=8, seed=seed)
        kept = sketch(torch.stack([one, other]))
        found.append(float(kept[0] @ kept[1]))
    interval = mean_estimate(found, confidence=0.999)
    assert interval.low <= truth <= interval.high
    assert interval.high - interval.low < 0.2 * abs(truth)


def test_the_error_falls_with_the_width() -> None:
    """The variance of an inner product is about |x|^2 |y|^2 / width."""
    one, other = vectors(2, 400)
    scale = float(one.norm() * other.norm())

    def error(width: int) -> float:
        kept = [
            Sketch(400, width=width, seed=seed)(torch.stack([one, other])) for seed in range(300)
        ]
        errors = [float(k[0] @ k[1] - one @ other) / scale for k in kept]
        return float(torch.tensor(errors).square().mean())

    for width in (10, 100):
        assert error(width) * width == pytest.approx(1.0, abs=0.35)


def test_the_seed_alone_decides_the_map() -> None:
    state = torch.get_rng_state()
    first, again, other = (matrix(Sketch(30, width=5, seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_keep_their_type(dtype) -> None:
    assert Sketch(30, width=5, seed=1)(torch.ones(2, 30, dtype=dtype)).dtype == dtype
