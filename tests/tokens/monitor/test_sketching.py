"""What is kept of gradients is linear, exact where short, and keeps inner products in the mean."""

import torch

from leakgauge.tokens.monitor.reading import LayerSketch


def shapes(**sizes: int) -> dict[str, list[torch.Size]]:
    return {name: [torch.Size([size])] for name, size in sizes.items()}


def test_short_layers_are_kept_whole_wherever_they_begin() -> None:
    sketch = LayerSketch(shapes(a=3, b=4, c=2), width=4, seed=0)
    parts = [torch.arange(3.0), torch.arange(10.0, 14), torch.arange(20.0, 22)]
    kept = sketch.split(sketch(parts)[None])
    assert [kept[name][0].tolist() for name in "abc"] == [part.tolist() for part in parts]


def test_inner_products_are_kept_in_the_mean_and_layers_apart() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 300, generator=rng)
    y = y + x
    found = []
    for seed in range(300):
        sketch = LayerSketch(shapes(a=7, b=300, c=5), width=16, seed=seed)
        first = sketch.split(sketch([torch.ones(7), x, torch.ones(5)])[None])["b"].clone()
        second = sketch.split(sketch([torch.zeros(7), y, -torch.ones(5)])[None])["b"]
        found.append(float((first * second).sum()))
    mean, error = torch.tensor(found).mean(), torch.tensor(found).std() / 300**0.5
    assert abs(mean - x @ y) < 3 * error
    assert error < 0.1 * abs(x @ y)


def test_it_is_linear() -> None:
    sketch = LayerSketch(shapes(a=50), width=8, seed=1)
    x, y = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(
        sketch([2 * x + y]).clone(), 2 * sketch([x]).clone() + sketch([y]).clone(), atol=1e-5
    )
