"""The cheap measure: kernels against autograd, alignment against sums over quadruples."""

import math

import pytest
import torch
from torch import nn

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.gradients.factored.factors import factors
from leakgauge.results.statistics import mean_estimate
from leakgauge.tokens.monitor.alignment import alignment, gradient_kernel, linear_kernel
from support.gaussians import gaussians
from support.planted import Odd
from support.references import gradients as plain
from support.references import tokens as literal


def sample(n: int, d: int, *, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n", [4, 5, 8])
def test_it_is_the_u_statistic_over_quadruples(n: int) -> None:
    x = sample(n, 3)
    k, other = linear_kernel(x), linear_kernel(x[:, :2] + 0.5 * sample(n, 2, seed=1))
    assert alignment(k, other) == pytest.approx(literal.aligned(k, other), rel=1e-9)


def test_it_tends_to_the_closed_form_of_a_linear_model() -> None:
    """|C_xy|^2 / |C_xx| |C_yy| for x of unit covariance and y = rho x + noise: rho^2."""
    for nats in (0.5, 2.0):
        x, y = gaussians(1500, 4, nats, seed=0)
        rho_squared = 1 - math.exp(-2 * nats / 4)
        assert alignment(linear_kernel(x), linear_kernel(y)) == pytest.approx(rho_squared, abs=0.04)
    x, noise = sample(1500, 3), sample(1500, 2, seed=1)
    mix = torch.tensor([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]], dtype=torch.float64)
    spread = torch.diag(torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64))
    y = x @ spread.sqrt() @ mix + noise
    of_y = mix.T @ spread @ mix + torch.eye(2)
    known = (spread @ mix).square().sum() / (spread.norm() * of_y.norm())
    found = alignment(linear_kernel(x @ spread.sqrt()), linear_kernel(y))
    assert found == pytest.approx(float(known), abs=0.04)


@pytest.mark.parametrize("n", [6, 20])
def test_independent_records_give_0_in_the_mean(n: int) -> None:
    """Plain CKA of 20 records with 30 numbers would be about 0.6."""
    found = [
        alignment(
            linear_kernel(sample(n, 30, seed=seed)),
            linear_kernel(sample(n, 30, seed=10_000 + seed)),
        )
        for seed in range(1500)
    ]
    interval = mean_estimate(found, confidence=0.999)
    assert interval.low <= 0 <= interval.high
    assert interval.high - interval.low < 0.07
    assert min(found) < 0 < max(found)


def test_shifts_scales_and_rotations_do_not_matter() -> None:
    x, y = gaussians(30, 5, 3.0, seed=0)
    turn = torch.linalg.qr(sample(5, 5, seed=3))[0]
    before = alignment(linear_kernel(x), linear_kernel(y))
    assert 0.2 < before < 1
    for changed in (7 * x, x + sample(1, 5, seed=2), x @ turn, -x):
        after = alignment(linear_kernel(changed), linear_kernel(y))
        assert after == pytest.approx(before, rel=1e-9)
    assert alignment(linear_kernel(y), linear_kernel(x)) == pytest.approx(before, rel=1e-12)
    assert alignment(linear_kernel(x), 3 * linear_kernel(x) + 2) == pytest.approx(1.0)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    same = alignment(linear_kernel(x[order]), linear_kernel(y[order]))
    assert same == pytest.approx(before, rel=1e-9)
    assert abs(alignment(linear_kernel(x[order]), linear_kernel(y))) < before / 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [4, 7, 20])
def test_a_kernel_that_does_not_vary_gives_0(n: int, dtype) -> None:
    varies = linear_kernel(sample(n, 3).to(dtype))
    for value in (0.0, 0.1, 0.3, 1e6):
        flat = torch.full((n, n), value, dtype=dtype)
        assert alignment(flat, varies) == alignment(varies, flat) == 0.0
        same = linear_kernel(sample(1, 3, seed=5).to(dtype).repeat(n, 1) * value)
        assert alignment(same, varies) == 0.0


def test_small_kernels_are_no_flat_ones() -> None:
    x, y = gaussians(20, 3, 2.0, seed=0)
    k, other = linear_kernel(x).float(), linear_kernel(y).float()
    assert alignment(1e-12 * k, other) == pytest.approx(alignment(k, other), rel=1e-5)
    assert alignment(1e-30 * k.double(), other) == pytest.approx(alignment(k, other), rel=1e-5)


def test_bad_kernels_are_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^a batch has 3 records; .* compares 4 or more$"):
        alignment(torch.eye(3), torch.eye(3))
    with pytest.raises(InputError, match=r"^kernels are \[5, 5\] and \[4, 4\]; expected both"):
        alignment(torch.eye(5), torch.eye(4))
    with pytest.raises(InputError, match=r"^there are no layers; name one to watch$"):
        gradient_kernel([])


def test_records_of_any_shape_and_type_have_a_kernel() -> None:
    x = torch.arange(24).reshape(3, 2, 4)
    flat = x.reshape(3, 8).float()
    assert torch.equal(linear_kernel(x), flat @ flat.T)
    assert linear_kernel(x.double()).dtype == torch.float64


def images() -> tuple[Task, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5), nn.Tanh(),
        nn.Linear(5, 3, bias=False),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(6, 2, 4, 4, generator=generator, dtype=torch.float64)
    return Task(model.double()), x, torch.arange(6) % 3


def words() -> tuple[Task, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(12, (6, 6), generator=generator).double()
    return Task(Odd().double()), x, torch.arange(6) % 2


@pytest.mark.parametrize("make", [images, words])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_gradient_kernels_are_those_of_autograd(make, dtype, tolerance: float) -> None:
    """Gradients of convolutions, linear layers, an embedding, attention and a normalisation."""
    task, x, y = make()
    exact = plain.loop(task, params_of(task.model), x[:, None], y[:, None])
    flat = torch.cat([leaf.flatten(1) for leaf in exact.values()], 1)
    known = flat @ flat.T
    task = Task(task.model.to(dtype), task.loss)
    found = factors(task, params_of(task.model), x.to(dtype), y)
    assert sum(len(one.gradient()) for one in found.values()) == len(exact)
    kernel = gradient_kernel(found.values())
    assert kernel.dtype == dtype
    assert (kernel.double() - known).norm() <= tolerance * known.norm()
