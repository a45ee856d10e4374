"""Quotients of the first layer's gradients: what they show of a batch's records."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import cross_entropy

from leakgauge.core.checks import InputError
from leakgauge.core.rng import stream
from leakgauge.core.types import Dataset, Task
from leakgauge.data import from_arrays
from leakgauge.defenses import none
from leakgauge.gradients import params_of
from leakgauge.inference import Discriminant, Energies, Shadow
from leakgauge.inference.adversaries.layer_inputs import (
    INPUT_RIDGE,
    MOST_INPUTS,
    MOST_OUTPUTS,
    SHARES,
    layer_inputs,
    layer_with_bias,
)
from leakgauge.inference.adversaries.quotients import QuotientReader
from leakgauge.models import mlp
from support.defenses import dpsgd
from support.synthetic import small_task

WIDTH = 12
UNIFORM = np.log([0.5, 0.5])


def shadow_of(data: Dataset, *, batch_size: int, defense=None, width: int = 64) -> Shadow:
    generator = torch.Generator().manual_seed(0)
    model = mlp(data.x.shape[1], 2, hidden=(width,), generator=generator).to(data.x.dtype)
    task = Task(model, cross_entropy)
    known = none() if defense is None else defense
    return Shadow(task, params_of(model), data, "s", 2, batch_size, 2**28, known)


def coin_labels(shift: float, *, n: int = 800, seed: int = 0, also: bool = False) -> Dataset:
    """Records with a secret that shifts all features a little, and labels by tossing a coin."""
    rng = stream(seed, "coins")
    secret = rng.integers(2, size=n)
    x = rng.normal(size=(n, WIDTH)) + shift * (secret[:, None] - 0.5)
    if also:
        x = np.concatenate([x, secret[:, None].astype(float)], axis=1)
    return from_arrays(x, rng.integers(2, size=n), {"s": secret}, dtype=torch.float64)


def features(
    shadow: Shadow, rows: np.ndarray, *, shares: tuple[float, ...] = SHARES
) -> torch.Tensor:
    made = layer_inputs(shadow)
    assert made is not None
    view = replace(made, shares=shares)
    return torch.cat([view(grads) for grads in shadow.gradients(rows)])


def test_one_record_is_read_exactly() -> None:
    shadow = shadow_of(coin_labels(0.0), batch_size=1)
    seen = features(shadow, np.arange(9)[:, None])
    torch.testing.assert_close(seen[:, :WIDTH], shadow.data.x[:9], rtol=1e-9, atol=1e-9)


def test_the_projection_is_the_nearest_point_between_the_records() -> None:
    """Solved by Lagrange multipliers from the records themselves, which the view does not see."""
    shadow = shadow_of(coin_labels(0.3), batch_size=5)
    rows = np.arange(40).reshape(8, 5)
    seen = features(shadow, rows, shares=(1e-9,))[:, WIDTH : 2 * WIDTH].numpy()
    x = shadow.data.x.numpy()
    centre, spread = x.mean(0), np.cov(x.T, bias=True)
    metric = spread + INPUT_RIDGE * np.trace(spread) / WIDTH * np.eye(WIDTH)
    values, vectors = np.linalg.eigh(metric)
    root = vectors / np.sqrt(values) @ vectors.T
    for batch, found in zip(rows, seen, strict=True):
        points = (x[batch] - centre) @ root
        gram = points @ points.T
        system = np.block([[gram, np.ones((5, 1))], [np.ones((1, 5)), np.zeros((1, 1))]])
        weights = np.linalg.solve(system, np.eye(6)[5])[:5]
        np.testing.assert_allclose(found, weights @ points, atol=1e-5)


def test_an_attribute_that_all_records_share_is_read_exactly() -> None:
    """Every point between the records has it, so the projection has it too."""
    data = coin_labels(0.0, also=True)
    shadow = shadow_of(data, batch_size=8)
    rows, secret = shadow.draw(60, rng=stream(0, "rows"))
    whitened = features(shadow, rows, shares=(1e-9,))[:, WIDTH + 1 : 2 * (WIDTH + 1)]
    view = layer_inputs(shadow)
    assert view is not None
    points = whitened @ torch.linalg.inv(view.inputs) + view.centre
    np.testing.assert_allclose(points[:, -1], secret, atol=1e-3)


def test_means_are_found_where_labels_hide_them() -> None:
    """Labels by a coin give the weights of the mean both signs, and a linear adversary fails."""
    data, fresh = coin_labels(0.2), coin_labels(0.2, seed=1)
    shadow, other = shadow_of(data, batch_size=16), shadow_of(fresh, batch_size=16)
    rows, secret = other.draw(600, rng=stream(1, "rows"))
    found = {}
    for attack in (QuotientReader(batches=800), Discriminant(batches=600), Energies(batches=800)):
        fitted = attack.fit(shadow, UNIFORM, rng=stream(0, "fit"))
        scores = np.concatenate([fitted.log_posterior(g) for g in other.gradients(rows)])
        found[attack.name] = roc_auc_score(secret, scores[:, 1] - scores[:, 0])
    direct = roc_auc_score(secret, fresh.x.sum(1)[torch.from_numpy(rows)].mean(1))
    assert found["quotients"] > direct - 0.05
    assert found["discriminant"] < direct - 0.2
    assert found["energies"] < found["quotients"] - 0.02


def test_no_secret_gives_chance_and_no_confidence() -> None:
    data, fresh = coin_labels(0.0), coin_labels(0.0, seed=1)
    shadow, other = shadow_of(data, batch_size=16), shadow_of(fresh, batch_size=16)
    fitted = QuotientReader(batches=800).fit(shadow, UNIFORM, rng=stream(0, "fit"))
    rows, secret = other.draw(600, rng=stream(1, "rows"))
    scores = np.concatenate([fitted.log_posterior(g) for g in other.gradients(rows)])
    assert abs(roc_auc_score(secret, scores[:, 1]) - 0.5) < 0.15  # 50 disjoint batches
    assert np.abs(np.exp(scores) - 0.5).mean() < 0.15


def test_noise_takes_the_confidence_away() -> None:
    noisy = dpsgd(clip=1.0, noise=8.0, batch_size=16)
    shadow = shadow_of(coin_labels(1.0), batch_size=16, defense=noisy)
    fitted = QuotientReader(batches=400).fit(shadow, UNIFORM, rng=stream(0, "fit"))
    rows, _ = shadow.draw(200, rng=stream(1, "rows"))
    scores = np.concatenate([fitted.log_posterior(g) for g in shadow.gradients(rows)])
    assert np.isfinite(scores).all()
    assert np.abs(np.exp(scores) - 0.5).mean() < 0.25


@pytest.mark.parametrize("batch_size", [2, 40])
def test_features_do_not_depend_on_the_scale_of_gradients(batch_size: int) -> None:
    shadow = shadow_of(coin_labels(0.3), batch_size=batch_size)
    view = layer_inputs(shadow)
    assert view is not None
    (grads,) = shadow.gradients(np.arange(batch_size)[None])
    small = {name: leaf * 1e-30 for name, leaf in grads.items()}
    kept = view(grads).shape[1] - 2  # the last bias is a feature itself
    torch.testing.assert_close(view(small)[:, :kept], view(grads)[:, :kept])
    assert kept == (3 if batch_size <= WIDTH else 1) * WIDTH


def test_a_gradient_of_zeros_has_finite_features() -> None:
    shadow = shadow_of(coin_labels(0.3), batch_size=4)
    view = layer_inputs(shadow)
    assert view is not None
    zeros = {name: torch.zeros(3, *leaf.shape).double() for name, leaf in shadow.params.items()}
    assert bool(view(zeros).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_without_any_bias_has_finite_features(dtype: torch.dtype) -> None:
    """As rounding to a few levels leaves it; before, weights were divided by next to nothing."""
    shadow = shadow_of(coin_labels(0.3), batch_size=4)
    view = layer_inputs(shadow)
    assert view is not None
    view = replace(
        view, **{name: getattr(view, name).to(dtype) for name in ("outputs", "centre", "inputs")}
    )
    grads = {name: torch.ones(3, *leaf.shape, dtype=dtype) for name, leaf in shadow.params.items()}
    grads[view.bias] = torch.zeros_like(grads[view.bias])
    assert bool(view(grads).isfinite().all())


def test_a_convolution_and_many_inputs_are_read() -> None:
    x = stream(0, "images").normal(size=(60, 3, 8, 8))
    data = from_arrays(x, np.arange(60) % 2, {"s": np.arange(60) // 30}, dtype=torch.float64)
    for model in (
        nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(180, 2)),
        nn.Sequential(nn.Flatten(), nn.Linear(192, 600), nn.ReLU(), nn.Linear(600, 2)),
    ):
        task = Task(model.double(), cross_entropy)
        shadow = Shadow(task, params_of(task.model), data, "s", 2, 4, 2**28)
        assert bool(features(shadow, np.arange(8).reshape(2, 4)).isfinite().all())


def test_a_model_without_such_a_layer_is_refused() -> None:
    data = coin_labels(0.0)
    task = Task(nn.Linear(WIDTH, 2, bias=False).double(), cross_entropy)
    shadow = replace(shadow_of(data, batch_size=4), task=task, params=params_of(task.model))
    assert layer_with_bias(shadow.params) is None
    with pytest.raises(InputError, match="no layer of the model has a bias"):
        QuotientReader().fit(shadow, UNIFORM, rng=stream(0, "fit"))


def test_a_layer_is_found_by_its_names() -> None:
    assert layer_with_bias(params_of(small_task(coin_labels(0.0)).model)) == ("0.weight", "0.bias")
    assert layer_with_bias(params_of(nn.Linear(2, 3))) == ("weight", "bias")
    large = nn.Sequential(nn.Linear(MOST_INPUTS + 1, 2), nn.Linear(2, MOST_OUTPUTS + 1))
    assert layer_with_bias(params_of(large)) is None
    assert layer_with_bias(params_of(large.append(nn.Linear(9, 3)))) == ("2.weight", "2.bias")
