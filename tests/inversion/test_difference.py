"""The slope by a difference of two gradients, against the one by differentiating twice."""

from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from leakgauge.core.checks import InputError
from leakgauge.core.rng import torch_stream
from leakgauge.core.types import Grads, Task
from leakgauge.gradients import params_of
from leakgauge.inversion.double_backward.difference import Difference
from leakgauge.inversion.double_backward.first_order import ReluMaskReplay
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.search.engine import reconstruct
from leakgauge.inversion.search.layer_weights import DepthWeights, LayerWeights
from leakgauge.inversion.search.objective import Cosine, SquaredError
from leakgauge.inversion.search.presets import preset
from leakgauge.inversion.search.settings import SearchSettings
from leakgauge.models import initialise, resnet20, slim


def drawn() -> torch.Generator:
    return torch_stream(0, "net")


class Sides(nn.Module):
    """Every kink that is known, in place and not; and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = nn.Linear(48, 30), nn.Linear(30, 30), nn.Linear(30, 10)
        self.leaky, self.inplace = nn.LeakyReLU(-0.2), nn.LeakyReLU(0.3, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inplace(F.relu(self.one(x.flatten(1)), inplace=True) - 0.1)
        x = torch.relu(self.leaky(self.two(x))) + self.two(x).relu_()
        return self.three(F.softplus(x).clamp(max=1e6))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.head = nn.Linear(16, 48), nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.inner(self.norm(x.flatten(2))).chunk(3, dim=-1)
        weights = (q @ k.mT / 4).softmax(-1)
        return self.head((weights @ v).mean(1))


NETS = {
    "slim": (lambda: slim(3, 10, 16, 8, generator=drawn()), (3, 16, 16)),
    "resnet, he": (
        lambda: initialise(resnet20(3, 10, 4, generator=drawn()), "he", generator=drawn()),
        (3, 16, 16),
    ),
    "sides": (lambda: initialise(Sides(), generator=drawn()), (3, 4, 4)),
    "attention": (lambda: initialise(Attention(), generator=drawn()), (3, 4, 4)),
}


def case(name: str, dtype: torch.dtype, rows: int = 2) -> tuple[Task, Tensor, Tensor, Grads]:
    make, shape = NETS[name]
    task = Task(make().to(dtype).eval(), F.cross_entropy)
    x = torch.randn(rows, 2, *shape, generator=torch_stream(0, "x"), dtype=torch.float64).to(dtype)
    other = torch.randn(rows, 2, *shape, generator=torch_stream(1, "x"), dtype=torch.float64)
    y = torch.tensor([[1, 2], [3, 3]])[:rows]
    wanted = differentiable_gradients(task, params_of(task.model), other.to(dtype), y)
    return task, x, y, {key: value.detach() for key, value in wanted.items()}


def both(name: str, dtype: torch.dtype, objective, **given) -> tuple[Tensor, Tensor, float]:
    """The slopes by difference and exactly, and how far the values are apart."""
    task, x, y, wanted = case(name, dtype)
    params, x = params_of(task.model), x.requires_grad_()

    exact = objective(differentiable_gradients(task, params, x, y), wanted)
    found = Difference(task, params, objective, wanted, **given)(x, y, torch.arange(2))
    slopes = [torch.autograd.grad(value.sum(), x)[0] for value in (found, exact)]
    return slopes[0], slopes[1], float((found - exact).detach().abs().max())


@pytest.mark.parametrize("objective", [Cosine(), SquaredError()], ids=repr)
@pytest.mark.parametrize("name", NETS)
def test_it_is_the_exact_slope_up_to_the_step(name: str, objective) -> None:
    found, exact, apart = both(name, torch.float64, objective, step=1e-8)
    assert apart < 1e-12
    assert (found - exact).norm() < 1e-5 * exact.norm()


@pytest.mark.parametrize("name", NETS)
def test_single_precision_is_enough_for_signs(name: str) -> None:
    found, exact, _ = both(name, torch.float32, Cosine())
    assert (found - exact).norm() < 0.05 * exact.norm()
    assert (found.sign() == exact.sign()).double().mean() > 0.98


@pytest.mark.parametrize("size", [0.0, 1e-6])
def test_a_layer_that_begins_near_zero_leaves_the_others_their_step(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the last convolution of a residual block often does."""
    make, shape = NETS["sides"]

    def still() -> nn.Module:
        model = make()
        with torch.no_grad():
            model.two.weight.mul_(size)
        return model

    monkeypatch.setitem(NETS, "still", (still, shape))
    found, exact, _ = both("still", torch.float32, Cosine())
    assert exact.norm() > 0
    assert (found - exact).norm() < 0.05 * exact.norm()


def test_products_have_all_digits_meanwhile() -> None:
    """On a GPU, where TF32 would round by more than the step."""
    own = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before, meanwhile = [one.fp32_precision for one in own], []

    def compare(found: Grads, _: Grads) -> Tensor:
        meanwhile.extend(one.fp32_precision for one in own)
        return next(iter(found.values())).flatten(1).square().sum(1)

    task, x, y, wanted = case("slim", torch.float32, rows=1)
    Difference(task, params_of(task.model), compare, wanted)(x, y, torch.tensor([0]))
    assert meanwhile == ["ieee", "ieee"]
    assert [one.fp32_precision for one in own] == before


def test_without_its_kinks_a_net_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is large enough for units to change sides; smooth parts forgive it."""

    def error() -> float:
        found, exact, _ = both("slim", torch.float64, Cosine(), step=1e-3)
        return float((found - exact).norm() / exact.norm())

    kept = error()
    monkeypatch.setattr(ReluMaskReplay, "run", lambda *_: None)
    assert kept < 0.01 < 0.05 < error()


def test_layers_that_are_not_compared_do_not_move() -> None:
    objective = Cosine(layers=("one.weight", "three.bias"))
    found, exact, _ = both("sides", torch.float64, objective, step=1e-8)
    assert (found - exact).norm() < 1e-5 * exact.norm()


@pytest.mark.parametrize("bent", [1, 2])
def test_a_model_that_does_not_repeat_itself_is_refused(bent: int) -> None:
    """Its first or its second run alone has a ReLU."""
    calls = count(1)  # outside of the model, whose attributes each pass restores

    class Moody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(48, 10)

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.inner(x)) if next(calls) == bent else self.inner(x)

    task = Task(initialise(Moody(), generator=drawn()), F.cross_entropy)
    x, y = torch.ones(1, 2, 48, requires_grad=True), torch.tensor([[0, 1]])
    wanted = {name: torch.ones_like(value)[None] for name, value in params_of(task.model).items()}
    difference = Difference(task, params_of(task.model), Cosine(), wanted)
    with pytest.raises(InputError, match="does not compute the same in a second run"):
        difference(x, y, torch.tensor([0]))


def of_both_paths(task: Task, objective, x: Tensor, y: Tensor, wanted: Grads) -> list[Tensor]:
    """The objective's slope by difference, and by differentiating plain autograd twice."""
    params = params_of(task.model)
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    x = x.requires_grad_()
    outputs = torch.func.functional_call(task.model, leaves, (x[0],))
    grads = torch.autograd.grad(
        task.loss(outputs, y[0]), list(leaves.values()), create_graph=True, allow_unused=True
    )
    plain = {
        name: (torch.zeros_like(leaves[name]) if grad is None else grad)[None]
        for name, grad in zip(leaves, grads, strict=True)
    }
    found = Difference(task, params, objective, wanted, step=1e-8)(x, y, torch.tensor([0]))
    torch.testing.assert_close(found, objective(plain, wanted), rtol=1e-9, atol=1e-12)
    return [torch.autograd.grad(v.sum(), x)[0] for v in (found, objective(plain, wanted))]


def test_a_loss_that_reads_the_model_reads_its_own_weights() -> None:
    """As at a client; its penalty then has no gradient in the weights that are attacked."""
    model = initialise(Sides(), generator=drawn()).double()
    task = Task(model, lambda out, y: F.cross_entropy(out, y) * model.one.weight.square().sum())
    x = torch.randn(1, 2, 3, 4, 4, generator=torch_stream(0, "x"), dtype=torch.float64)
    y = torch.tensor([[1, 2]])
    wanted = {
        name: torch.randn(1, *value.shape, generator=torch_stream(1, "w"), dtype=torch.float64)
        for name, value in params_of(model).items()
    }
    found, exact = of_both_paths(task, Cosine(), x, y, wanted)
    assert (found - exact).norm() < 1e-5 * exact.norm()
    apart = differentiable_gradients(task, params_of(model), x, y)
    plain = differentiable_gradients(task, params_of(model), x.detach(), y)
    for name, value in plain.items():
        torch.testing.assert_close(value, apart[name].detach(), rtol=1e-9, atol=1e-12)


def test_a_kernel_that_the_model_makes_runs_as_it_is() -> None:
    """Also under ``vmap``, which knows nothing of layouts."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = nn.Parameter(torch.randn(3, 3, 3, 3, generator=drawn()))
            self.head = nn.Linear(3 * 64, 10)

        def forward(self, x: Tensor) -> Tensor:
            kernel = self.kernel / self.kernel.norm()
            convolve = torch.func.vmap(lambda one: F.conv2d(one[None], kernel, padding=1)[0])
            return self.head(torch.tanh(convolve(x)).view(len(x), -1))

    task = Task(Made().double(), F.cross_entropy)
    x = torch.randn(1, 2, 3, 8, 8, generator=torch_stream(0, "x"), dtype=torch.float64)
    wanted = {
        name: torch.randn(1, *value.shape, generator=torch_stream(1, "w"), dtype=torch.float64)
        for name, value in params_of(task.model).items()
    }
    for dtype in (torch.float64, torch.float32):
        task.model.to(dtype)
        given = x.to(dtype), torch.tensor([[1, 2]])
        Difference(
            task, params_of(task.model), Cosine(), {k: v.to(dtype) for k, v in wanted.items()}
        )(*given, torch.tensor([0]))
    task.model.double()
    found, exact = of_both_paths(task, Cosine(), x, torch.tensor([[1, 2]]), wanted)
    assert (found - exact).norm() < 1e-5 * exact.norm()


def test_gradients_of_wide_layers_lie_as_the_weights_do() -> None:
    task, x, y, _ = case("slim", torch.float32, rows=1)
    found = differentiable_gradients(task, params_of(task.model), x, y)
    assert all(value.is_contiguous() for value in found.values())


def test_an_objective_made_from_another_is_taken_at_its_word() -> None:
    class Fivefold(Cosine):
        def __call__(self, found: Grads, wanted: Grads) -> Tensor:
            return 5 * super().__call__(found, wanted)

    found, exact, apart = both("sides", torch.float64, Fivefold(), step=1e-8)
    assert apart < 1e-12
    assert (found - exact).norm() < 1e-5 * exact.norm()


def test_no_layers_are_refused() -> None:
    task, _, _, wanted = case("sides", torch.float32)
    with pytest.raises(InputError, match="no layer is compared"):
        Difference(task, params_of(task.model), Cosine(layers=()), wanted)


@pytest.mark.slow
def test_an_attack_gets_as_far_with_it() -> None:
    """In the mean of eight: one alone ends half or twice as far away after other roundings."""
    task = case("slim", torch.float32)[0]
    x = torch.rand(8, 1, 3, 16, 16, generator=torch_stream(2, "x")) - 0.5
    y = torch.arange(8).view(8, 1)
    params = params_of(task.model)
    wanted = {k: v.detach() for k, v in differentiable_gradients(task, params, x, y).items()}
    chosen = replace(preset("leakgauge", iterations=100), total_variation=0.0)
    given = {"shape": (1, 3, 16, 16), "labels": y, "seed": 0}
    given |= {"low": torch.tensor(-0.5), "high": torch.tensor(0.5)}
    found = {
        slope: reconstruct(task, params, wanted, replace(chosen, slope=slope), **given)
        for slope in ("exact", "difference")
    }
    torch.testing.assert_close(
        found["difference"].losses[:, 0], found["exact"].losses[:, 0], rtol=1e-4, atol=1e-6
    )
    begin = found["exact"].losses[:, 0]
    for one in found.values():
        assert (one.loss < 0.3 * begin).all()
    ratio = (found["difference"].loss / found["exact"].loss).log().mean().exp()
    assert 2 / 3 < ratio < 3 / 2


@pytest.mark.parametrize("changed", [{"joint_labels": True}, {"optimizer": "lbfgs"}])
def test_settings_that_it_does_not_serve_are_refused(changed: dict) -> None:
    with pytest.raises(InputError, match="set slope=exact"):
        SearchSettings(slope="difference", schedule="constant", **changed)


@pytest.mark.parametrize("weights", [LayerWeights(), DepthWeights()])
def test_weighted_layers_are_served(weights) -> None:
    objective = weights.objective(case("slim", torch.float64)[0].model)
    found, exact, _ = both("slim", torch.float64, objective, step=1e-8)
    assert (found - exact).norm() < 1e-5 * exact.norm()
