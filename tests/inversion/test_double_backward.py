"""The inner step against plain double backward: the same gradients, whatever the model."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from leakgauge.core.checks import InputError
from leakgauge.core.types import Task
from leakgauge.gradients import params_of
from leakgauge.inversion.double_backward import convolution as fastconv
from leakgauge.inversion.double_backward import gradients as fast
from leakgauge.inversion.double_backward.gradients import differentiable_gradients
from leakgauge.inversion.double_backward.products import products, squares

# PyTorch's own word on uneven padding.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")

CLASSES = 3
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class Residual(nn.Module):
    """Strides, a shortcut, BatchNorm in eval mode, and changes in place."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.plain_norm = nn.BatchNorm2d(4, affine=False)
        self.shortcut = nn.Conv2d(2, 4, 1, 2)
        self.head = nn.Linear(4, CLASSES)
        with torch.no_grad():
            for norm in (self.norm, self.plain_norm):
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.5, 2)
        self.eval()

    def forward(self, x):
        out = self.second(F.silu(self.norm(self.first(x)), inplace=True))
        out = self.plain_norm(out)
        out += self.shortcut(x)
        return self.head(torch.tanh_(out).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


class Odd(nn.Module):
    """A scalar, a frozen parameter, an unused one, tied weights, and a weight that is computed."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(2, 3))
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.second(torch.tanh(self.first(self.frozen(x)))))
        return F.linear(x, torch.tanh(self.head.weight), self.scale * self.head.bias)


class Viewing(nn.Module):
    """Calls ``view`` on what a convolution gave, which must be laid out as the model expects."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 3, 3, padding=1)
        self.head = nn.Linear(3 * 36, CLASSES)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)).view(x.shape[0], -1))


class Branching(nn.Module):
    """Cannot be vectorised."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.layer(x * x if x.abs().max() < 100 else x)


class Interacting(nn.Module):
    """The records of a batch meet, those of two batches must not."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv1d(4, 4, 1)

    def forward(self, x):
        out = torch.tanh(self.layer(x[..., None])).squeeze(-1)
        return (out * out.mean(0))[:, :CLASSES]


def convolutions():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=(2, 1), padding=1), nn.Tanh(),
        nn.Conv2d(4, 6, (3, 2), padding="same", dilation=(1, 2), groups=2, bias=False), nn.Tanh(),
        nn.Conv2d(6, 4, 2, padding=1, padding_mode="circular", dilation=2), nn.Tanh(),
        nn.Conv2d(4, 4, 2, padding="same"), nn.Tanh(),
        nn.Conv2d(4, 4, 2, padding="valid", groups=4),
        nn.Flatten(), nn.LazyLinear(CLASSES),
    )  # fmt: skip


def normalised():
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.LayerNorm(16),
        nn.Linear(16, CLASSES),
    )  # fmt: skip


def volume():
    return nn.Sequential(nn.Conv3d(1, 2, 2), nn.Sigmoid(), nn.Flatten(), nn.Linear(16, CLASSES))


MODELS = {
    "convolutions": (convolutions, (2, 7, 6)),
    "residual": (Residual, (2, 6, 6)),
    "norms": (normalised, (2, 6)),
    "volume": (volume, (1, 3, 3, 3)),
    "attention": (Attention, (4, 6)),
    "odd parameters": (Odd, (4,)),
    "view": (Viewing, (2, 6, 6)),
    "branch on data": (Branching, (4,)),
    "records that meet": (Interacting, (4,)),
}


def drawn(build, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def batches(model, shape, count, batch, dtype, *, soft=False, seed=0):
    """A task, parameters that are not the model's own, and random batches and wanted gradients."""
    generator = torch.Generator().manual_seed(seed)
    model = model.to(dtype)
    normal = lambda *size: torch.randn(size, generator=generator, dtype=dtype)  # noqa: E731
    x = normal(count, batch, *shape)
    with torch.no_grad():
        model(x[0])
    params = {name: value + 0.1 * normal(*value.shape) for name, value in params_of(model).items()}
    y = torch.randint(0, CLASSES, (count, batch), generator=generator)
    if soft:
        y = normal(count, batch, CLASSES).softmax(-1)
    wanted = {name: normal(count, *value.shape) for name, value in params.items()}
    return Task(model, F.cross_entropy), params, x, y, wanted


def literal(task, params, x, y):
    """Each batch by itself, by plain autograd."""
    rows = []
    for n in range(len(x)):
        given = {name: value.detach().requires_grad_() for name, value in params.items()}
        with sdpa_kernel(SDPBackend.MATH):
            loss = task.loss(functional_call(task.model, given, (x[n],)), y[n])
        found = torch.autograd.grad(
            loss, list(given.values()), create_graph=True, materialize_grads=True
        )
        rows.append(dict(zip(given, found, strict=True)))
    return {name: torch.stack([row[name] for row in rows]) for name in params}


def distance(found, wanted):
    """Cosine and squared distance in one number for each row, as an objective has it."""
    rows = lambda value: value.reshape(len(value), -1).sum(1)  # noqa: E731
    dot = sum(rows(found[k] * wanted[k]) for k in wanted)
    return -dot / sum(rows(found[k].square()) for k in wanted).sqrt() + dot**2


def to_inputs(step, task, params, x, y, wanted):
    """The gradients, and what one further backward pass gives for x (and soft y)."""
    inputs = [x.detach().requires_grad_()]
    labels = y
    if y.is_floating_point():
        labels = y.detach().requires_grad_()
        inputs.append(labels)
    grads = step(task, params, inputs[0], labels)
    return grads, torch.autograd.grad(distance(grads, wanted).sum(), inputs)


def assert_near(found, wanted, tolerance):
    found, wanted = found.detach(), wanted.detach()
    scale = float(wanted.norm())
    assert found.shape == wanted.shape
    assert float((found - wanted).norm()) <= tolerance * max(scale, 1e-30), (
        float((found - wanted).norm()), scale,
    )  # fmt: skip


def assert_same_step(task, params, x, y, wanted):
    tolerance = TOLERANCE[x.dtype]
    grads, found = to_inputs(differentiable_gradients, task, params, x, y, wanted)
    expected, reference = to_inputs(literal, task, params, x, y, wanted)
    assert list(grads) == list(params)
    for name, value in expected.items():
        if bool(value.any()):
            assert_near(grads[name], value, tolerance)
        else:
            assert grads[name].shape == value.shape
            assert not grads[name].any()
    for one, other in zip(found, reference, strict=True):
        assert_near(one, other, tolerance)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("count", "batch"), [(1, 1), (1, 3), (3, 1), (2, 2)])
@pytest.mark.parametrize("name", MODELS)
def test_the_step_equals_plain_double_backward(name, count, batch, dtype, soft):
    build, shape = MODELS[name]
    assert_same_step(*batches(drawn(build), shape, count, batch, dtype, soft=soft))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_convolution(data):
    draw = data.draw
    space = draw(st.integers(1, 2))
    whole = lambda low, high: tuple(draw(st.integers(low, high)) for _ in range(space))  # noqa: E731
    groups = draw(st.integers(1, 2))
    kernel, dilation = whole(1, 3), whole(1, 2)
    stride = whole(1, 2)
    padding = draw(st.sampled_from(["same", "valid", "zeros"]))
    if padding == "zeros":
        padding = whole(0, 2)
    elif padding == "same":
        stride = (1,) * space
    kind = (nn.Conv1d, nn.Conv2d)[space - 1]
    mode = draw(st.sampled_from(["zeros", "circular"]))
    build = lambda: nn.Sequential(  # noqa: E731
        kind(2, 4, 1),
        nn.Tanh(),
        kind(
            *(4, 2 * groups, kernel, stride, padding, dilation, groups, draw(st.booleans()), mode)
        ),
        nn.Tanh(),
        nn.Flatten(),
        nn.LazyLinear(CLASSES),
    )
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    count, batch = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    assert_same_step(*batches(drawn(build), (2, *whole(5, 7)), count, batch, dtype))


@pytest.mark.parametrize(
    ("channels", "side", "how"),
    [
        (256, 8, {"padding": 1}),
        (200, 8, {"stride": 2, "padding": (1, 2), "dilation": (2, 1)}),
        (40, 24, {"padding": 1}),
        (30, 8, {"padding": 1}),
    ],
)
def test_kernels_of_one_image_that_pytorch_passes_by(channels, side, how):
    conv = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(2, channels, 3, padding=1), nn.Tanh(),
        nn.Conv2d(channels, channels, 3, **how), nn.Tanh(),
        nn.Flatten(), nn.LazyLinear(CLASSES),
    )  # fmt: skip
    assert_same_step(*batches(drawn(conv), (2, side, side), 1, 1, torch.float32))


@pytest.mark.parametrize("name", ["convolutions", "residual", "attention", "odd parameters"])
@pytest.mark.parametrize("stacked", [False, True])
def test_local_steps_are_differentiated_through_the_weights(name, stacked):
    """Two steps of SGD, unrolled: the second gradient depends on x through its weights."""
    build, shape = MODELS[name]
    task, params, x, y, wanted = batches(drawn(build), shape, 2, 2, torch.float64)

    def unrolled(task, params, x, y):
        rows = []
        for n in range(len(x)):
            now = {k: v.clone().requires_grad_() for k, v in params.items()}
            change = {k: torch.zeros_like(v) for k, v in params.items()}
            for record in range(x.shape[1]):
                with sdpa_kernel(SDPBackend.MATH):
                    outputs = functional_call(task.model, now, (x[n, record : record + 1],))
                loss = task.loss(outputs, y[n, record : record + 1])
                found = torch.autograd.grad(
                    loss, list(now.values()), create_graph=True, materialize_grads=True
                )
                step = dict(zip(now, found, strict=True))
                change = {k: change[k] - 0.3 * step[k] for k in now}
                now = {k: now[k] - 0.3 * step[k] for k in now}
            rows.append(change)
        return {k: torch.stack([row[k] for row in rows]) for k in params}

    def fast_unrolled(task, params, x, y):
        first = {k: v.expand(len(x), *v.shape) for k, v in params.items()} if stacked else params
        open_ = {"weights_fixed": False}
        one = differentiable_gradients(
            task, first, x[:, :1], y[:, :1], stacked_params=stacked, **open_
        )
        now = {k: v - 0.3 * one[k] for k, v in params.items()}
        two = differentiable_gradients(task, now, x[:, 1:], y[:, 1:], stacked_params=True, **open_)
        return {k: -0.3 * (one[k] + two[k]) for k in params}

    _, (found,) = to_inputs(fast_unrolled, task, params, x, y, wanted)
    _, (expected,) = to_inputs(unrolled, task, params, x, y, wanted)
    assert_near(found, expected, 1e-9)


def test_stacked_parameters_belong_to_their_own_batch():
    build, shape = MODELS["residual"]
    task, params, x, y, _ = batches(drawn(build), shape, 3, 2, torch.float64)
    apart = {k: v + torch.randn(3, *v.shape, dtype=v.dtype) for k, v in params.items()}
    found = differentiable_gradients(task, apart, x, y, stacked_params=True)
    for n in range(3):
        one = literal(task, {k: v[n] for k, v in apart.items()}, x[n : n + 1], y[n : n + 1])
        for name, value in one.items():
            assert_near(found[name][n : n + 1], value, 1e-9)


@pytest.mark.parametrize("name", ["convolutions", "residual", "norms", "attention", "view"])
def test_models_that_can_are_vectorised(name, monkeypatch):
    build, shape = MODELS[name]
    task, params, x, y, wanted = batches(drawn(build), shape, 3, 2, torch.float64)
    monkeypatch.setattr(fast, "_looped", lambda *_: pytest.fail("it looped"))
    to_inputs(differentiable_gradients, task, params, x, y, wanted)


def test_no_graph_unless_requested():
    build, shape = MODELS["residual"]
    task, params, x, y, _ = batches(drawn(build), shape, 2, 2, torch.float64)
    assert not any(
        value.requires_grad for value in differentiable_gradients(task, params, x, y).values()
    )
    with torch.no_grad():
        found = differentiable_gradients(task, params, x.requires_grad_(), y)
    assert not any(value.requires_grad for value in found.values())


@pytest.mark.parametrize("count", [1, 2])
def test_the_model_and_torch_are_left_as_they_were(count):
    model = drawn(lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES)))
    task, params, x, y, wanted = batches(model, (4,), count, 3, torch.float64)
    model.train()
    before = copy.deepcopy(model.state_dict())
    grads, _ = to_inputs(differentiable_gradients, task, params, x, y, wanted)
    for name, value in literal(Task(copy.deepcopy(model), task.loss), params, x, y).items():
        torch.testing.assert_close(grads[name], value, rtol=0, atol=1e-9)
    with pytest.raises(RuntimeError, match="shapes"):
        differentiable_gradients(task, params, x[..., :2], y)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(value.grad is None for value in model.parameters())
    assert not any("hook" in name and value for name, value in vars(model[0]).items())
    weight = torch.ones(1, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(F.linear(x[0], weight).sum(), weight)[0].shape == weight.shape


def test_an_input_changed_in_place_is_refused():
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, CLASSES)

        def forward(self, x):
            x = 2 * x
            out = self.layer(x)
            x.add_(1)
            return out + x.sum()

    task, params, x, y, _ = batches(Overwriting(), (4,), 1, 2, torch.float64)
    with pytest.raises(InputError, match="in place"):
        differentiable_gradients(task, params, x, y)


def test_inputs_that_do_not_fit_are_refused():
    task, params, x, y, _ = batches(drawn(Branching), (4,), 2, 2, torch.float64)
    with pytest.raises(InputError, match=r"expected \[N, B, \.\.\.\]"):
        differentiable_gradients(task, params, x[0, 0], y)
    with pytest.raises(InputError, match="like x"):
        differentiable_gradients(task, params, x, y[0])
    with pytest.raises(InputError, match=r"'layer.bias' is missing"):
        differentiable_gradients(task, {"layer.weight": params["layer.weight"]}, x, y)
    with pytest.raises(InputError, match=r"expected \[N, \*p\] with N 2"):
        differentiable_gradients(task, params, x, y, stacked_params=True)


@pytest.mark.parametrize("rows", [1, 3])
def test_products_agree_with_finite_differences(rows):
    shapes, weights = [(rows, 5), (rows, 2, 3)], torch.rand(2, rows, dtype=torch.float64)
    ones = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    others = [torch.randn(s, dtype=torch.float64) for s in shapes]
    assert torch.autograd.gradcheck(lambda *given: products(given, others, weights), ones)
    dot, square = products(ones, others, weights)
    flat = [(w, a.flatten(1), b.flatten(1)) for w, a, b in zip(weights, ones, others, strict=True)]
    torch.testing.assert_close(dot, sum(w * (a * b).sum(1) for w, a, b in flat))
    torch.testing.assert_close(square, sum(w * (a * a).sum(1) for w, a, b in flat))
    torch.testing.assert_close(
        squares(others, weights), sum(w * (b * b).sum(1) for w, a, b in flat)
    )


def test_seven_kernels_for_a_matched_gradient(monkeypatch):
    """Count for two convolutions; the first has no input gradient in the first backward pass."""
    counted = []
    for name in ("outputs", "input_gradient", "weight_gradient"):
        plain = getattr(fastconv.Geometry, name)
        monkeypatch.setattr(
            fastconv.Geometry, name,
            lambda *given, plain=plain, name=name: (counted.append(name), plain(*given))[1],
        )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, CLASSES)
    )
    to_inputs(differentiable_gradients, *batches(model, (2, 6, 6), 1, 2, torch.float32))
    assert {name: counted.count(name) for name in set(counted)} == {
        "outputs": 2 + 2 + 1,
        "input_gradient": 1 + 2 + 2,
        "weight_gradient": 2,
    }
